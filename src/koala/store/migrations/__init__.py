"""How the schema came to be, one revision after the other. ``koala.store.migrating`` runs them."""
