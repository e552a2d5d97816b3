package wallet

// workCap is how many jobs wait for a worker: the bound of what one sync of a slow disk can have behind it, and the place where too many
// requests are refused.
const workCap = 512
