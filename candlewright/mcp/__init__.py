"""The platform's data and triggers as tools of an assistant, by the Model Context Protocol."""
