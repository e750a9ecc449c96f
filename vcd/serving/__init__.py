"""What every port that other machines reach needs: authentication, authorization, Host header checks, limits, TLS."""
