package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"golang.org/x/term"

	"ronbox/httpapi/wire"
)

// Table prints the output of a verb for people in aligned columns.
type Table struct{ w *tabwriter.Writer }

// Row prints one line. Cells are printed as by fmt.Print, with control characters escaped.
func (t Table) Row(cells ...any) {
	for i, c := range cells {
		if i > 0 {
			fmt.Fprint(t.w, "\t")
		}
		fmt.Fprint(t.w, marked(c))
	}
	fmt.Fprint(t.w, "\n")
}

// Rows prints a line for each pair of a name and a value.
func (t Table) Rows(pairs ...any) {
	for ; len(pairs) > 0; pairs = pairs[2:] {
		t.Row(pairs[0], pairs[1])
	}
}

// Opt prints a line unless its value is empty.
func (t Table) Opt(name, value string) {
	if value != "" {
		t.Row(name, value)
	}
}

// Show prints the result of a verb: doc with --json, else the table of human, unless --quiet is
// set.
func (a *App) Show(doc any, human func(t Table)) error {
	if a.Flags.JSON {
		return a.PrintJSON(doc)
	}
	if a.Flags.Quiet {
		return nil
	}
	return a.Print([]byte(a.table(human, IsTerminal(a.Stdout))))
}

// table returns the table of human, as a terminal or a file shows it.
func (a *App) table(human func(t Table), terminal bool) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	human(Table{w})
	_ = w.Flush() // to memory
	return a.colours(terminal).Replace(out.String())
}

// PrintJSON prints doc as one line of JSON; members keep the order of their struct.
func (a *App) PrintJSON(doc any) error {
	raw, err := Encode(doc)
	if err != nil {
		return err
	}
	return a.Print(raw)
}

// Encode encodes doc as one line of JSON, with the line end.
func Encode(doc any) ([]byte, error) {
	raw, err := json.Marshal(doc, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode the result: %w", err)
	}
	return append(raw, '\n'), nil
}

// Print prints bytes unchanged.
func (a *App) Print(b []byte) error {
	if _, err := a.Stdout.Write(b); err != nil {
		return fmt.Errorf("write to stdout: %w", err)
	}
	return nil
}

// Say prints a message for people to stderr, unless --quiet or --json.
func (a *App) Say(format string, args ...any) {
	if !a.Flags.Quiet && !a.Flags.JSON {
		a.Warn(format, args...)
	}
}

// Warn prints a message to stderr even with --quiet or --json.
func (a *App) Warn(format string, args ...any) {
	a.clearLine()
	fmt.Fprintln(a.Stderr, Plain(fmt.Sprintf(format, args...)))
}

// complain reports the error that ends the process and returns its exit code.
func (a *App) complain(err error) int {
	a.clearLine()
	v := a.advise(err, Classify(err, a.rows...))
	if a.Flags.JSON {
		if a.PrintJSON(asProblem(err, v)) == nil {
			return v.Code
		}
	}
	fmt.Fprintf(a.Stderr, "ronbox: %s\n", Plain(err.Error()))
	if p, ok := errors.AsType[*wire.Problem](err); v.Next != "" && !(ok && strings.Contains(p.Detail, v.Next)) {
		fmt.Fprintf(a.Stderr, "  %s\n", Plain(v.Next))
	}
	return v.Code
}

// FoundBad reports a failed check of a verb and sets the exit code. The result is already printed,
// so --json prints no second document. kind, if not empty, is printed as the last line.
func (a *App) FoundBad(problem, kind string) error {
	a.Exit = ExitBad
	if a.Flags.JSON {
		return nil
	}
	a.clearLine()
	fmt.Fprintf(a.Stderr, "ronbox: checked and found bad: %s\n", strings.ReplaceAll(Plain(problem), "\n", "; "))
	if kind != "" {
		fmt.Fprintln(a.Stderr, kind)
	}
	return nil
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w any) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

// Plain escapes control characters and those that change the direction of text, except line ends.
func Plain(s string) string { return escape(s, func(r rune) bool { return r == '\n' }) }

// cell is Plain for a cell of a table: one line without tabs.
func cell(v any) string {
	return escape(strings.ReplaceAll(fmt.Sprint(v), "\n", "; "), func(rune) bool { return false })
}

func escape(s string, keep func(rune) bool) string {
	unfit := func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) && !keep(r) }
	if strings.IndexFunc(s, unfit) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unfit(r) {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Clip shortens text to n bytes.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// ShortHash returns the kind and the first 12 hex digits of a hash.
func ShortHash(b3 string) string {
	const keep = len("b3:") + 12
	if len(b3) <= keep {
		return b3
	}
	return b3[:keep] + "…"
}

// Decimal formats a number.
func Decimal(v uint64) string { return strconv.FormatUint(v, 10) }

// FormatTime formats a time to the second.
func FormatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// FormatStamp formats a time to the millisecond, as receipts do.
func FormatStamp(t time.Time) string { return t.UTC().Format(wire.InstantLayout) }

// Exported is the result of an export into a file.
type Exported struct {
	File  string `json:"file"`
	Rows  uint64 `json:"rows"`
	Bytes int64  `json:"bytes"`
}

// Table prints the result.
func (e Exported) Table(t Table) {
	t.Row("written", e.File)
	t.Row("rows", e.Rows)
	t.Row("size", Bytes(e.Bytes))
}
