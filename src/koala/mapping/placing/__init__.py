"""Step 2 of WASE: clustered tasks onto the machines of a wide-area grid."""
