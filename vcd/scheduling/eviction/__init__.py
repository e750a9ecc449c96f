"""Room that has to be made: who may ask for it, who may go, and who is nominated for it."""
