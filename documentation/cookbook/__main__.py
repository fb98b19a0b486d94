"""Make the figures and pictures of the cookbook from recorded data, and its index.

python -m documentation.cookbook --data DIR [NAME …]    # the recipes NAME, or all
python -m documentation.cookbook                        # the index alone
"""

import argparse
from pathlib import Path

from documentation.cookbook import pages, picture
from documentation.cookbook.figures import Recordings
from documentation.cookbook.recipes import all_recipes


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m documentation.cookbook", description=__doc__.splitlines()[0])
    arguments.add_argument("--data", type=Path, metavar="DIR", help="the folder of recorded market data")
    arguments.add_argument("names", nargs="*", metavar="NAME", help="recipes to run (default: all)")
    given = arguments.parse_args()
    recipes = all_recipes()
    if given.data is not None:
        recordings = Recordings(given.data, recipes)
        for name in given.names or recipes:
            run = recordings.run(recipes[name])
            recipes[name].image.write_text(picture.svg(run))
            recipes[name].write(pages.made(run))
            print(f"{name}: {run.matches.num_rows} matches")
    pages.INDEX.write_text(pages.index(recipes))


if __name__ == "__main__":
    main()
