package wallet

import "testing"

// The cells of a statement that a payer chooses, in a file, on a terminal, and in a spreadsheet.
func TestCSVCells(t *testing.T) {
	for _, tt := range []struct{ in, terminal, safe string }{
		{"rent", "rent", "rent"},
		{"", "", ""},
		{"=1+1", "=1+1", "'=1+1"},
		{"+1", "+1", "'+1"},
		{"-1", "-1", "'-1"},
		{"@SUM(A1)", "@SUM(A1)", "'@SUM(A1)"},
		{"\t=1", `\t=1`, "'\t=1"},
		{"\x1b[2J\x1b[31mred", `\x1b[2J\x1b[31mred`, "\x1b[2J\x1b[31mred"},
		{"\u202egnp", `\u202egnp`, "\u202egnp"},
		{"a\x00b", `a\x00b`, "a\x00b"},
	} {
		if got := csvCell(tt.in, false, false); got != tt.in {
			t.Errorf("%q in a file: %q", tt.in, got)
		}
		if got := csvCell(tt.in, true, false); got != tt.terminal {
			t.Errorf("%q on a terminal: %q", tt.in, got)
		}
		if got := csvCell(tt.in, false, true); got != tt.safe {
			t.Errorf("%q in a spreadsheet: %q", tt.in, got)
		}
	}
}
