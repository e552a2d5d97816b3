package asset

// MaxPath is the length of the longest path.
const MaxPath = maxPath
