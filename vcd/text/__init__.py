"""Text for users: the one package in which sentences, figures and names become text."""
