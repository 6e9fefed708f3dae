"""What the pages show: one class a page, loaded whole before its template is rendered, with its JSON twin."""
