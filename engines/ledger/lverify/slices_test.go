package lverify

// InSlices limits the number of rows per command, so that a test with few rows runs many commands.
func (o Options) InSlices(rows int) Options {
	o.rows = rows
	return o
}
