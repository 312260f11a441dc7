"""Every plan is placed on nodes here, whichever policy chose it."""
