"""`python -m localspec`."""

if __name__ == "__main__":
    from localspec.cli import main

    main()
