"""Text for users: the one package that turns sentences, quantities and names into text."""
