"""The house, under /settings: who may do what in the account, and how the installation is run. One module a tab."""

from app.views.house import account, accounts, entering, notices, operations, passkeys, second_factor, shell, users

blueprint = shell.blueprint

__all__ = [
    "account",
    "accounts",
    "blueprint",
    "entering",
    "notices",
    "operations",
    "passkeys",
    "second_factor",
    "users",
]
