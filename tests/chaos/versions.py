def write(version: int) -> None:
    pass
