package refusal

import (
	"fmt"
	"net/http"
	"strings"
)

// Row describes one kind of refusal.
type Row struct {
	Reason string // lower_snake, the same for all services
	Cause  string // the details.cause for which the row holds; "": any
	Title  string
	Status int  // of HTTP
	Exit   int  // of a command; 0: that of Status
	Retry  bool // repeating the same request may succeed
	Wait   Wait

	// Sentences for people.
	Means   string
	Changed string // by the request: nothing if it had no effect
	Next    string // what to do on the command line; {member} stands for that member of the details
	Call    string // what to do over HTTP; "": Next
}

// nothing is Changed of a refusal without effect.
const nothing = "Nothing."

// Wait selects the Retry-After of a row.
type Wait int

const (
	WaitNone     Wait = iota
	WaitBusy          // 1 or 2 s, at random, so that refused callers do not come back together
	WaitDegraded      // that of the service
	WaitToken         // until the bucket has a token, at least 1 s
	WaitDrain         // the rest of the drain, and 5 s to start again
)

// Exit codes of commands for refusals that have no other.
const (
	ExitFailed = 1
	ExitDenied = 5 // no token, or one without permission
	ExitBusy   = 6 // the same command may succeed later
)

// ExitCode returns the exit code of a command that was refused so.
func (r *Row) ExitCode() int {
	if r.Exit != 0 {
		return r.Exit
	}
	return ExitOf(r.Status)
}

// ExitOf returns the exit code for a status of HTTP.
func ExitOf(status int) int {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return ExitDenied
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
		return ExitBusy
	}
	return ExitFailed
}

// Advice returns Next with the members of the details. A member that is absent leaves its name in
// capitals.
func (r *Row) Advice(details map[string]any) string {
	var b strings.Builder
	for rest := r.Next; ; {
		text, after, found := strings.Cut(rest, "{")
		b.WriteString(text)
		if !found {
			return b.String()
		}
		name, more, _ := strings.Cut(after, "}")
		if v, ok := details[name]; ok {
			fmt.Fprint(&b, v)
		} else {
			b.WriteString(strings.ToUpper(name))
		}
		rest = more
	}
}

// Detail returns the text of an answer: what happened, what was changed, and what to do next. text,
// if not empty, tells what happened and what was changed; the answer then has Call only. field, if
// not empty, names the member at fault.
func (r *Row) Detail(text, field string, details map[string]any) string {
	if text != "" {
		return join(text, r.Call)
	}
	if field != "" {
		field += ": "
	}
	next := r.Call
	if next == "" {
		next = r.Advice(details)
	}
	return join(field+r.Means, r.effect(), next)
}

// effect returns Changed as a whole sentence, or "" if everybody expects that nothing was changed.
func (r *Row) effect() string {
	if r.Changed == nothing && r.Status < http.StatusInternalServerError {
		return ""
	}
	rest, ok := strings.CutPrefix(r.Changed, "Nothing")
	if ok && (strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, " by ")) {
		return "Nothing was changed" + rest
	}
	return r.Changed
}

// join returns the sentences of parts. A part that does not end a sentence gets a full stop, if
// another one follows.
func join(parts ...string) string {
	out := ""
	for _, p := range parts {
		if p == "" {
			continue
		}
		if out != "" && !strings.ContainsAny(out[len(out)-1:], ".?!") {
			out += "."
		}
		if out != "" {
			out += " "
		}
		out += p
	}
	return out
}

// Table holds the rows of a service.
type Table []Row

// Find returns the row of a refusal by the service that has the table, or nil if its reason is not
// known. A row of the same cause comes before one for any cause, and one of the table before a
// shared one.
func (t Table) Find(reason, cause string) *Row {
	causes := []string{cause, ""}
	if cause == "" {
		causes = causes[1:]
	}
	for _, want := range causes {
		for _, rows := range []Table{t, Shared} {
			for i := range rows {
				if rows[i].Reason == reason && rows[i].Cause == want {
					return &rows[i]
				}
			}
		}
	}
	return nil
}
