"""What every port that others reach needs: who asks and what they may do, under which names, and TLS."""
