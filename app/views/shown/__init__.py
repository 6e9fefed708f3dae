"""What the pages show: one dataclass a page, loaded whole before its template is rendered, with its JSON twin."""
