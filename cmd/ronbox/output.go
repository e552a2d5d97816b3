package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/go-json-experiment/json"
	"golang.org/x/term"
)

// table is what a verb prints for people: cells in aligned columns.
type table struct{ w *tabwriter.Writer }

// row prints one line; cells are printed as fmt.Print does, but for what would steer a terminal.
func (t table) row(cells ...any) {
	for i, c := range cells {
		if i > 0 {
			fmt.Fprint(t.w, "\t")
		}
		fmt.Fprint(t.w, cell(c))
	}
	fmt.Fprint(t.w, "\n")
}

// show prints a verb's result: doc with --json, else what human writes, unless --quiet.
func (a *app) show(doc any, human func(t table)) error {
	if a.flags.json {
		return a.document(doc)
	}
	if a.flags.quiet {
		return nil
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	human(table{w})
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write to stdout: %w", err)
	}
	return nil
}

// document prints doc as one line of JSON; members keep the order of their struct.
func (a *app) document(doc any) error {
	raw, err := encode(doc)
	if err != nil {
		return err
	}
	return a.raw(raw)
}

// encode gives doc as one line of JSON with its end.
func encode(doc any) ([]byte, error) {
	raw, err := json.Marshal(doc, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode the result: %w", err)
	}
	return append(raw, '\n'), nil
}

// raw prints bytes as they are: what is hashed or signed must not be touched.
func (a *app) raw(b []byte) error {
	if _, err := a.stdout.Write(b); err != nil {
		return fmt.Errorf("write to stdout: %w", err)
	}
	return nil
}

// say prints a message for people to stderr, unless --quiet or --json.
func (a *app) say(format string, args ...any) {
	if !a.flags.quiet && !a.flags.json {
		fmt.Fprintln(a.stderr, plain(fmt.Sprintf(format, args...)))
	}
}

// notice prints to stderr what a person must not miss, even with --quiet or --json.
func (a *app) notice(format string, args ...any) {
	fmt.Fprintln(a.stderr, plain(fmt.Sprintf(format, args...)))
}

// complain reports the error that ends the process and returns its exit code.
func (a *app) complain(err error) int {
	v := judge(err)
	if a.flags.json {
		if a.document(asProblem(err)) == nil {
			return v.code
		}
	}
	fmt.Fprintf(a.stderr, "ronbox: %s\n", plain(err.Error()))
	if v.next != "" {
		fmt.Fprintf(a.stderr, "  %s\n", plain(v.next))
	}
	return v.code
}

// terminal tells whether a person looks at w.
func terminal(w any) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

// short is a hash for people: its kind and the first 12 hex digits.
func short(b3 string) string {
	const keep = len("b3:") + 12
	if len(b3) <= keep {
		return b3
	}
	return b3[:keep] + "…"
}
