package cli

import "strings"

// OK, Warn and Bad are cells of a table that tell how things are. On a terminal they have a colour.
type (
	OK   string
	Warn string
	Bad  string
)

// Verdict returns the cell good or bad.
func Verdict(ok bool, good, bad string) any {
	if ok {
		return OK(good)
	}
	return Bad(bad)
}

// marked returns a cell of a table between two marks. All cells have them, so that they do not
// shift the columns. A cell itself contains no control characters.
func marked(v any) string {
	mark := "\x05"
	switch v.(type) {
	case OK:
		mark = "\x01"
	case Warn:
		mark = "\x02"
	case Bad:
		mark = "\x03"
	default:
		return mark + cell(v) + mark
	}
	return mark + cell(v) + "\x04"
}

var (
	coloured = strings.NewReplacer(
		"\x01", "\x1b[32m", "\x02", "\x1b[33m", "\x03", "\x1b[31m", "\x04", "\x1b[0m", "\x05", "")
	plain = strings.NewReplacer("\x01", "", "\x02", "", "\x03", "", "\x04", "", "\x05", "")
)

// colours returns what replaces the marks in a table: colours on a terminal, unless NO_COLOR or
// TERM=dumb asks for none.
func (a *App) colours(terminal bool) *strings.Replacer {
	if !terminal || a.Variable("NO_COLOR") != "" || a.Variable("TERM") == "dumb" {
		return plain
	}
	return coloured
}
