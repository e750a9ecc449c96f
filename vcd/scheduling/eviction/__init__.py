"""Room that has to be made: who may ask for it, who may go, and for whom it is kept."""
