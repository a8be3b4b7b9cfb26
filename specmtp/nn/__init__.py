"""Networks: plain torch modules, every state they need passed in as an argument."""
