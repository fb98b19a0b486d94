"""Commands about stored rows: importing, exporting, gaps, quality, manifests."""
