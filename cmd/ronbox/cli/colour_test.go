package cli

import "testing"

// A table has colours only on a terminal, and they do not shift its columns.
func TestColours(t *testing.T) {
	const plain = "STATE  NAME\nok     a\nwarn   b\nBAD    \\x1b[31m\n"
	const coloured = "STATE  NAME\n\x1b[32mok\x1b[0m     a\n\x1b[33mwarn\x1b[0m   b\n\x1b[31mBAD\x1b[0m    \\x1b[31m\n"
	for _, tt := range []struct {
		doc      string
		terminal bool
		env      []string
		want     string
	}{
		{"a terminal", true, []string{"TERM=xterm", "NO_COLOR="}, coloured},
		{"a pipe", false, []string{"TERM=xterm"}, plain},
		{"NO_COLOR", true, []string{"TERM=xterm", "NO_COLOR=1"}, plain},
		{"a dumb terminal", true, []string{"TERM=dumb"}, plain},
	} {
		a := &App{Env: tt.env}
		got := a.table(func(t Table) {
			t.Row("STATE", "NAME")
			t.Row(OK("ok"), "a")
			t.Row(Warn("warn"), "b")
			t.Row(Bad("BAD"), "\x1b[31m")
		}, tt.terminal)
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.doc, got, tt.want)
		}
	}
}
