package lverify

// InSlices has commands write at most so many rows, so that a test needs few of them to have many commands.
func (o Options) InSlices(rows int) Options {
	o.rows = rows
	return o
}
