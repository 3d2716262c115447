"""`python -m lumos`: the same as the command `lumos`."""

from lumos.cli.main import main

if __name__ == "__main__":
    main()
