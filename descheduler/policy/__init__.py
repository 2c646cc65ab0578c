"""Policy files: both formats read strictly, watched, and printed with their defaults."""
