"""``python -m nvfp4`` is ``nvfp4``."""

from nvfp4.cli.main import main

if __name__ == "__main__":
    main()
