"""How the schema came to be, one revision after the other. ``koala.store.migrate`` runs them."""
