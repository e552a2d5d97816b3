package history

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"ronbox/engines/archive/object"
	"ronbox/engines/archive/target"
)

// Archive is the list of the objects in a target.
type Archive struct {
	Lines   []*Line // by node, then by age
	Periods []*Copy // by node, then by period
	Strange int     // names that no node has made
	target  target.Target
	now     time.Time // when it was listed
}

// Line is an unbroken chain of log objects of a node, with the bases along it.
type Line struct {
	Node  string
	ID    string
	Logs  []Log  // by Seq
	Bases []Base // by Seq
	Bytes int64
	left  *Line // the same, listed later; nil: it was not
}

// Log is a log object.
type Log struct {
	Seq uint64 // command before its first entry
	target.Item
}

// Base is a base, perhaps an incomplete one.
type Base struct {
	Seq   uint64
	Parts []Part // by number
}

// Part is a part of a base, or of the file of a closed period.
type Part struct {
	Number int
	target.Item
}

// Newest returns when the newest part was created.
func (b *Base) Newest() (at time.Time) {
	for _, p := range b.Parts {
		if p.At.After(at) {
			at = p.At
		}
	}
	return at
}

// Newest returns when the newest object was created.
func (l *Line) Newest() (at time.Time) {
	for _, i := range l.items() {
		if i.At.After(at) {
			at = i.At
		}
	}
	return at
}

// Oldest returns when the oldest object was created.
func (l *Line) Oldest() (at time.Time) {
	for _, i := range l.items() {
		if at.IsZero() || i.At.Before(at) {
			at = i.At
		}
	}
	return at
}

// clockSlack is the time by which the clocks of a target and of its readers may differ. An object
// that is younger still was created while a clock ran ahead, and its time says nothing.
const clockSlack = time.Hour

// latest returns when the newest object was created whose time is not ahead of now. It returns zero
// if all are.
func (l *Line) latest(now time.Time) (at time.Time) {
	for _, i := range l.items() {
		if i.At.After(at) && !i.At.After(now.Add(clockSlack)) {
			at = i.At
		}
	}
	return at
}

// newest returns the line that was written last, by the clock of the target: stamps are those of a
// node, whose clock may have run ahead. It returns -1 if there is none.
func newest(lines []*Line, now time.Time) int {
	last := -1
	for i, l := range lines {
		if last < 0 || !l.latest(now).Before(lines[last].latest(now)) {
			last = i
		}
	}
	return last
}

// Nodes returns the ids of the nodes.
func (a *Archive) Nodes() (all []string) {
	for _, l := range a.Lines {
		if !slices.Contains(all, l.Node) {
			all = append(all, l.Node)
		}
	}
	for _, c := range a.Periods {
		if !slices.Contains(all, c.Node) {
			all = append(all, c.Node)
		}
	}
	return all
}

// Of returns the part of the archive that is of one node.
func (a *Archive) Of(node string) *Archive {
	of := &Archive{target: a.target, now: a.now}
	for _, l := range a.Lines {
		if l.Node == node {
			of.Lines = append(of.Lines, l)
		}
	}
	for _, c := range a.Periods {
		if c.Node == node {
			of.Periods = append(of.Periods, c)
		}
	}
	return of
}

// ids are the names of nodes and lines.
var ids = regexp.MustCompile(`^[0-7][0-9A-HJKMNP-TV-Z]{25}$`)

// Open lists a target. With a node it lists the objects of that node alone.
func Open(ctx context.Context, t target.Target, node string) (*Archive, error) {
	a := &Archive{target: t, now: time.Now()}
	if node != "" && !ids.MatchString(node) {
		return nil, fmt.Errorf("%q is not the id of a node", node)
	}
	prefix := ""
	if node != "" {
		prefix = node + "/"
	}
	return a, a.list(ctx, prefix)
}

// list adds the objects whose names begin with prefix.
func (a *Archive) list(ctx context.Context, prefix string) error {
	err := a.target.List(ctx, prefix, "", func(i target.Item) bool {
		if i.Name != target.Mark && !a.add(i) {
			a.Strange++
		}
		return true
	})
	for _, l := range a.Lines {
		slices.SortFunc(l.Logs, func(x, y Log) int { return strings.Compare(x.Name, y.Name) })
	}
	return err
}

// again lists a line again. It is empty if no object of it is left.
func (a *Archive) again(ctx context.Context, l *Line) (*Line, error) {
	now := &Archive{target: a.target}
	err := now.list(ctx, l.Node+"/"+l.ID+"/")
	return now.line(l.Node, l.ID), err
}

// add adds an object. It reports false if no node can have made its name.
func (a *Archive) add(i target.Item) bool {
	s := strings.Split(i.Name, "/")
	if len(s) == 5 && s[1] == "periods" {
		return a.addPeriod(s, i)
	}
	if len(s) < 4 || !ids.MatchString(s[0]) || !ids.MatchString(s[1]) || len(s[3]) != 16 {
		return false
	}
	seq, err := strconv.ParseUint(s[3], 16, 64)
	if err != nil || fmt.Sprintf("%016x", seq) != s[3] {
		return false
	}
	number := 0
	switch {
	case s[2] == "log" && len(s) == 4:
	case s[2] == "base" && len(s) == 5:
		if number, err = partNumber(s[4]); err != nil {
			return false
		}
	default:
		return false
	}
	l := a.line(s[0], s[1])
	l.Bytes += i.Bytes
	if s[2] == "log" {
		l.Logs = append(l.Logs, Log{seq, i})
		return true
	}
	if n := len(l.Bases); n == 0 || l.Bases[n-1].Seq != seq {
		l.Bases = append(l.Bases, Base{Seq: seq})
	}
	b := &l.Bases[len(l.Bases)-1]
	b.Parts = append(b.Parts, Part{number, i})
	return true
}

// partNumber parses the number of a part as names have it.
func partNumber(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err == nil && fmt.Sprintf("%05d", n) != text {
		err = strconv.ErrSyntax
	}
	return n, err
}

// line returns the line of an object; names come in order.
func (a *Archive) line(node, id string) *Line {
	for _, l := range slices.Backward(a.Lines) {
		if l.Node == node && l.ID == id {
			return l
		}
	}
	l := &Line{Node: node, ID: id}
	a.Lines = append(a.Lines, l)
	return l
}

// headerRead is the number of bytes that hold most headers.
const headerRead = 4 << 10

// header reads the header of an object, which is neither summed nor compared with its name, unless
// it seems to be of another release.
func (a *Archive) header(ctx context.Context, name string) (object.Header, error) {
	size := headerRead
	for {
		raw, err := a.target.Read(ctx, name, 0, int64(size))
		if err != nil {
			return object.Header{}, err
		}
		h, n, err := object.ParseHeader(raw)
		switch {
		case errors.Is(err, object.ErrFormat): // or a changed byte, which its sum tells
			_, err = a.fetch(ctx, target.Item{Name: name})
			return h, err
		case err != nil:
			return h, &ObjectError{name, err}
		case n <= len(raw):
			return h, nil
		case len(raw) < size:
			return h, &ObjectError{name, fmt.Errorf("%w: it ends within its header", object.ErrDamaged)}
		}
		size = n
	}
}

// fetch reads a whole object and checks that it is the one that its name says.
func (a *Archive) fetch(ctx context.Context, i target.Item) (*object.Object, error) {
	raw, err := a.target.Read(ctx, i.Name, 0, object.MaxObject+1)
	if errors.Is(err, target.ErrNotExist) {
		return nil, &ObjectError{i.Name, err}
	}
	if err != nil {
		return nil, err
	}
	o, err := object.Parse(raw)
	if err == nil && o.Name() != i.Name {
		err = fmt.Errorf("%w: it is %s", object.ErrDamaged, o.Name())
	}
	if err != nil {
		return nil, &ObjectError{i.Name, err}
	}
	return o, nil
}

// ObjectError is an error of one object.
type ObjectError struct {
	Object string
	Cause  error
}

func (e *ObjectError) Error() string { return e.Object + ": " + e.Cause.Error() }

// Unwrap returns the cause.
func (e *ObjectError) Unwrap() error { return e.Cause }

// whole reports whether all parts of a base are there, by the header of its first part.
func (a *Archive) whole(ctx context.Context, b *Base) (h object.Header, whole bool, err error) {
	for i, p := range b.Parts {
		if p.Number != i {
			return h, false, nil
		}
	}
	h, err = a.header(ctx, b.Parts[0].Name)
	if errors.Is(err, object.ErrDamaged) || errors.Is(err, target.ErrNotExist) { // a prune has begun to delete it
		return h, false, nil
	}
	return h, err == nil && h.Kind == object.Base && h.Parts == len(b.Parts), err
}

// logHeader reads the header of a log object.
func (a *Archive) logHeader(ctx context.Context, name string) (object.Header, error) {
	h, err := a.header(ctx, name)
	if err == nil && h.Name() != name {
		err = &ObjectError{name, fmt.Errorf("%w: it is %s", object.ErrDamaged, h.Name())}
	}
	return h, err
}
