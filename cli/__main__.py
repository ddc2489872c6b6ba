"""``python -m cli`` is ``nvfp4``."""

from cli.main import main

if __name__ == "__main__":
    main()
