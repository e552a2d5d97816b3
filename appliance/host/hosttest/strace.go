package hosttest

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"path/filepath"
	"strconv"
	"strings"
)

// Never is the line at which a call ended that has not returned.
const Never = math.MaxInt

// Call is a system call in a trace of `strace -f -y -xx -o FILE`.
type Call struct {
	Name   string
	Args   string // as strace prints them
	Result string // "" if the call has not returned
	Began  int    // line of the trace
	Ended  int    // line of the trace, or Never
}

// Calls returns the calls of a trace in the order in which they ended. A call that has not returned
// ends with its thread.
func Calls(trace io.Reader) iter.Seq2[Call, error] {
	return func(yield func(Call, error) bool) {
		lines := bufio.NewReaderSize(trace, 1<<20)
		open := map[string]Call{} // by thread
		for n := 1; ; n++ {
			line, err := lines.ReadString('\n')
			if err != nil {
				if !errors.Is(err, io.EOF) {
					yield(Call{}, err)
					return
				}
				break
			}
			thread, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			c, ended := parseCall(open[thread], strings.TrimLeft(text, " "), n)
			switch {
			case c.Name == "": // a signal
			case !ended:
				open[thread] = c
			default:
				delete(open, thread)
				if !yield(c, nil) {
					return
				}
			}
		}
		for _, c := range open {
			if !yield(c, nil) {
				return
			}
		}
	}
}

// parseCall parses line n of a trace without its thread. begun is the open call of the thread. It
// reports whether the call has ended, or its thread.
func parseCall(begun Call, text string, n int) (c Call, ended bool) {
	c = begun
	if strings.HasPrefix(text, "+++ ") {
		return c, true
	}
	if _, rest, resumed := strings.Cut(text, " resumed>"); resumed && strings.HasPrefix(text, "<... ") {
		c.Args += rest
	} else {
		name, args, ok := strings.Cut(text, "(")
		if !ok || strings.ContainsAny(name, " +-") {
			return Call{}, false
		}
		c = Call{Name: name, Args: args, Began: n, Ended: Never}
	}
	end := strings.LastIndex(c.Args, ") ")
	result, ended := strings.CutPrefix(strings.TrimLeft(c.Args[end+1:], " "), "= ")
	if ended {
		c.Args = c.Args[:max(end, 0)]
	}
	if ended && result != "?" {
		c.Result, c.Ended = result, n
	}
	for strings.HasSuffix(c.Args, " ...>") { // <unfinished ...>, <detached ...>
		c.Args = c.Args[:strings.LastIndex(c.Args, " <")]
	}
	return c, ended
}

// Failed reports whether the call returned an error.
func (c Call) Failed() bool { return strings.HasPrefix(c.Result, "-1") }

// Number returns the number that the call returned, or -1.
func (c Call) Number() int64 {
	text, _, _ := strings.Cut(c.Result, "<")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// FD returns the first argument, a descriptor, and the path of its file. The path is "" if the name
// of the file was removed.
func (c Call) FD() (fd int64, path string) {
	number, rest, _ := strings.Cut(c.Args, "<")
	fd, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return -1, ""
	}
	text, rest, _ := strings.Cut(rest, ">")
	path = string(unhex(text))
	if strings.HasPrefix(rest, "(deleted)") || strings.HasSuffix(path, " (deleted)") {
		return fd, ""
	}
	return fd, path
}

// Paths returns the paths among the arguments of a call that takes names below directories, such as
// openat and renameat.
func (c Call) Paths() (out []string) {
	rest := c.Args
	for {
		before, after, ok := strings.Cut(rest, `"`)
		if !ok {
			return out
		}
		name, after, _ := strings.Cut(after, `"`)
		path := string(unhex(name))
		if !filepath.IsAbs(path) {
			_, dir, _ := strings.Cut(before, "<")
			dir, _, _ = strings.Cut(dir, ">")
			path = filepath.Join(string(unhex(dir)), path)
		}
		out, rest = append(out, path), after
	}
}

// Data returns the bytes that a call wrote, and an error if the trace does not have all of them.
func (c Call) Data() ([]byte, error) {
	_, after, _ := strings.Cut(c.Args, `"`)
	text, after, ok := strings.Cut(after, `"`)
	if !ok || strings.HasPrefix(after, "...") {
		return nil, fmt.Errorf("the trace lacks data: %.200s(%.200s)", c.Name, c.Args)
	}
	return unhex(text), nil
}

// Last returns the last argument.
func (c Call) Last() string { return c.Args[strings.LastIndex(c.Args, " ")+1:] }

// LastNumber returns the last argument, a number.
func (c Call) LastNumber() (int64, error) {
	n, err := strconv.ParseInt(c.Last(), 10, 64)
	if err != nil {
		err = fmt.Errorf("%s: the arguments end with %q: %w", c.Name, c.Args[max(0, len(c.Args)-80):], err)
	}
	return n, err
}

// unhex decodes text of the form \x00\x01. Other text is returned as it is.
func unhex(text string) []byte {
	raw, err := hex.DecodeString(strings.ReplaceAll(text, `\x`, ""))
	if err != nil {
		return []byte(text)
	}
	return raw
}
