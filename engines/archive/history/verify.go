package history

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ronbox/engines/archive/object"
	"ronbox/engines/archive/target"
	"ronbox/store"
)

// Finding is what is wrong with one object, or with a line.
type Finding struct {
	Object  string `json:"object"`
	Problem string `json:"problem"`
}

// Checked is the result of Verify.
type Checked struct {
	Lines    int       `json:"lines"`
	Objects  int       `json:"objects"`
	Bytes    int64     `json:"bytes"`
	Bases    int       `json:"bases"`   // complete ones
	Periods  int       `json:"periods"` // complete copies of files of closed periods
	Entries  int       `json:"entries"` // that were read; 0 without an identity
	Notes    []Finding `json:"notes"`   // what is not wrong, but should be known
	Findings []Finding `json:"findings"`
}

func (c *Checked) found(object string, err error) {
	if one, ok := errors.AsType[*ObjectError](err); ok {
		object, err = one.Object, one.Cause
	}
	c.Findings = append(c.Findings, Finding{object, err.Error()})
}

// Verify reads every object: names, sums, signatures and the chain of objects, and with an identity
// every entry and the bytes of every base and of every file of a closed period. An error is that of
// the target or of the identity.
func (a *Archive) Verify(ctx context.Context, o Options) (Checked, error) {
	c := Checked{Notes: []Finding{}, Findings: []Finding{}}
	var lines []*verification
	bases := map[string]int{} // complete ones, by node
	for _, l := range a.Lines {
		if o.Line != "" && l.ID != o.Line {
			continue
		}
		c.Lines++
		v := &verification{run: run{a: a, o: o, signer: o.Signer}, c: &c, line: l}
		if err := v.all(ctx); err != nil {
			return c, err
		}
		lines = append(lines, v)
		c.Bases += v.bases
		bases[l.Node] += v.bases
	}
	for _, v := range lines {
		if v.bases == 0 {
			v.bare(bases[v.line.Node])
		}
		if err := v.judgeCut(ctx); err != nil {
			return c, err
		}
	}
	if o.Line == "" && len(a.Periods) > 0 {
		return c, a.checkPeriods(ctx, &c, o)
	}
	return c, nil
}

// baseWithin is the time in which a line that has begun gets a base.
const baseWithin = 72 * time.Hour

// bare judges a line without a complete base. It has just begun, or a prune has left it, if the
// moments of another line can be restored: its node has so many bases.
func (v *verification) bare(bases int) {
	a, c, l := v.a, v.c, v.line
	f := Finding{l.Node + "/" + l.ID, "it has no complete base, so nothing of it can be restored"}
	if bases == 0 || v.isLast() && a.now.Sub(l.Oldest()) > baseWithin {
		c.Findings = append(c.Findings, f)
		return
	}
	f.Problem = "it has no complete base yet: until then the line before it is restored"
	if !v.isLast() {
		f.Problem = "it has no complete base: it ended before one was sent, or a prune has begun to delete it"
	}
	c.Notes = append(c.Notes, f)
}

// isLast reports whether the line is the newest one of its node.
func (v *verification) isLast() bool {
	own := v.a.Of(v.line.Node).Lines
	return v.line == own[newest(own, v.a.now)]
}

// judgeCut judges the bases without their first parts: a prune has begun to delete them, or they
// are damaged, as without the bases that no prune deletes.
func (v *verification) judgeCut(ctx context.Context) error {
	if len(v.cut) == 0 {
		return nil
	}
	now := &Archive{target: v.a.target} // a base may have been completed, and an older one pruned, since
	if err := now.list(ctx, v.line.Node+"/"); err != nil {
		return err
	}
	bases, err := now.bases(ctx, now.Lines)
	if err != nil {
		return err
	}
	for _, name := range v.cut {
		if len(bases) >= leastBases {
			v.c.Notes = append(v.c.Notes, Finding{name, "it is missing: a prune has begun to delete its base"})
		} else {
			v.c.found(name, errors.New("it is missing"))
		}
	}
	return nil
}

// verification verifies one line.
type verification struct {
	run
	c     *Checked
	line  *Line
	begin int          // index of the first log object that was not pruned meanwhile
	first object.Point // where the log begins
	bases int          // complete ones so far
	cut   []string     // first parts that are missing, and none before them is there
	whole bool         // the first object is the first of the line
	leads bool         // a complete base leads to it
	gone  bool         // objects were pruned meanwhile
	last  *store.EntryHead
}

// all verifies the line.
func (v *verification) all(ctx context.Context) error {
	for i, o := range v.line.Logs {
		if err := v.log(ctx, i, o); err != nil {
			return err
		}
	}
	for i := range v.line.Bases {
		ok, err := v.checkBase(ctx, i)
		if err != nil {
			return err
		}
		if ok {
			v.bases++
		}
	}
	if v.gone {
		v.c.Notes = append(v.c.Notes, Finding{v.line.Node + "/" + v.line.ID,
			"a prune has deleted objects of it since they were listed"})
	}
	if v.bases > 0 && len(v.line.Logs) > 0 && v.whole && !v.leads {
		v.early()
	}
	return nil
}

// early judges a line that began while a group was being written, and whose next base is not
// complete yet.
func (v *verification) early() {
	f := Finding{v.line.Logs[0].Name, "no complete base leads to it yet: of the line only the base before is restored"}
	if v.isLast() && v.a.now.Sub(v.line.Oldest()) > baseWithin {
		v.c.Findings = append(v.c.Findings, f)
		return
	}
	v.c.Notes = append(v.c.Notes, f)
}

// fatal returns err unless it is a fault of an object, which it notes.
func (v *verification) fatal(err error) error {
	_, one := errors.AsType[*ObjectError](err)
	for _, other := range []error{object.ErrIdentity, object.ErrFormat, store.ErrFormat} {
		one = one && !errors.Is(err, other)
	}
	if !one {
		return err
	}
	v.c.found("", err)
	return nil
}

// errPruned is returned when an object was pruned since it was listed.
var errPruned = errors.New("it was pruned")

// read reads an object, and its plain bytes if there is an identity for them. It returns errPruned
// for an object of the line, if there is one.
func (v *verification) read(ctx context.Context, i target.Item) (o *object.Object, plain []byte, err error) {
	o, err = v.a.fetch(ctx, i)
	if errors.Is(err, target.ErrNotExist) && v.line != nil {
		pruned, err := v.a.pruned(ctx, v.line, i.Name)
		if err != nil {
			return nil, nil, err
		}
		if pruned {
			v.gone = true
			return nil, nil, errPruned
		}
	}
	v.c.Objects, v.c.Bytes = v.c.Objects+1, v.c.Bytes+i.Bytes
	if err != nil {
		return nil, nil, v.fatal(err)
	}
	if v.signer == "" {
		v.signer = o.Signer
	}
	if o.Signer != v.signer {
		return nil, nil, v.fatal(&ObjectError{i.Name, fmt.Errorf("%w: %s, not %s", ErrSigner, o.Signer, v.signer)})
	}
	if o.Cipher != object.None && len(v.o.Identities) == 0 {
		return o, nil, nil
	}
	if plain, err = o.Plain(v.o.Identities); err != nil {
		return nil, nil, v.fatal(&ObjectError{i.Name, err})
	}
	return o, plain, nil
}

// log verifies a log object and that it follows the one before it.
func (v *verification) log(ctx context.Context, i int, item Log) error {
	o, plain, err := v.read(ctx, item.Item)
	if err == errPruned {
		v.begin, v.sum, v.last = i+1, "", nil
		return nil
	}
	if o == nil {
		v.sum, v.last = "", nil // what follows cannot be compared
		if err == nil && i+1 < len(v.line.Logs) {
			v.to = object.Point{Seq: v.line.Logs[i+1].Seq}
		}
		return err
	}
	switch {
	case i == v.begin:
		v.first, v.whole = o.From, o.Prev == ""
	case o.From.Seq > v.to.Seq:
		v.c.found("", v.gap(item.Name, v.to.Seq))
		v.last = nil
	case o.From.Seq < v.to.Seq || v.sum != "" && (o.Prev != v.sum || o.From != v.to):
		v.c.found(item.Name, errors.New("it does not follow the object before it"))
		v.last = nil
	}
	v.sum, v.to = o.Sum.String(), o.To
	if plain == nil {
		return nil
	}
	return v.fatal(v.entries(item.Name, o, plain))
}

// entries verifies the entries of a log object.
func (v *verification) entries(name string, o *object.Object, plain []byte) error {
	es, err := object.Entries(plain)
	for i, e := range es {
		var h store.EntryHead
		if h, err = store.ReadEntry(e); err != nil {
			break
		}
		begins := i > 0 || object.PointOf(h.From) == o.From
		if !begins || v.last != nil && (h.Prev != v.last.Sum || h.From != v.last.To) {
			err = fmt.Errorf("%w: entry %d does not follow the one before it", object.ErrDamaged, i)
			break
		}
		v.last = &h
		v.c.Entries++
	}
	if err == nil && (len(es) != o.Entries || object.PointOf(v.last.To) != o.To) {
		err = fmt.Errorf("%w: its entries are not those of its header", object.ErrDamaged)
	}
	if err != nil {
		return &ObjectError{name, err}
	}
	return nil
}

// checkBase verifies a base. It reports whether the base is complete and sound.
func (v *verification) checkBase(ctx context.Context, i int) (whole bool, err error) {
	b := &v.line.Bases[i]
	was, parts := len(v.c.Findings), 0
	sum := &baseSum{}
	if v.bases == 0 && b.beheaded() {
		first := partName(b.Parts[0].Name, 0)
		pruned, err := v.a.pruned(ctx, v.line, first)
		if pruned {
			v.cut = append(v.cut, first)
		}
		if pruned || err != nil {
			return false, err
		}
	}
	for n, p := range b.Parts {
		if p.Number != n {
			v.c.found(partName(p.Name, n), errors.New("it is missing"))
			return false, nil
		}
		o, plain, err := v.read(ctx, p.Item)
		if err == errPruned {
			v.cut = append(v.cut, p.Name)
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if o == nil {
			continue
		}
		if parts = max(parts, o.Parts); o.Parts != parts {
			v.c.found(p.Name, fmt.Errorf("it is one of %d parts, the others of %d", o.Parts, parts))
		}
		if err := sum.add(n, plain); err != nil {
			v.c.found(p.Name, err)
		}
	}
	switch {
	case len(v.c.Findings) > was:
		return false, nil
	case len(b.Parts) < parts && i == len(v.line.Bases)-1:
		v.c.Notes = append(v.c.Notes, Finding{partName(b.Parts[0].Name, len(b.Parts)),
			"it is being sent, or its end is missing: the base before it is used"})
		return false, nil
	case len(b.Parts) < parts:
		v.c.found(partName(b.Parts[0].Name, len(b.Parts)), errors.New("it is missing"))
		return false, nil
	}
	if err := sum.check(); err != nil {
		v.c.found(b.Parts[0].Name, err)
		return false, nil
	}
	switch {
	case len(v.line.Logs) == 0 || v.first.Seq <= b.Seq:
		v.leads = true
	case !v.whole:
		v.c.found("", v.gap(v.line.Logs[0].Name, b.Seq))
	}
	return true, nil
}

// beheaded reports whether only the first parts of a base are missing, which a prune deletes first.
func (b *Base) beheaded() bool {
	first, last := b.Parts[0].Number, b.Parts[len(b.Parts)-1].Number
	return first > 0 && last-first == len(b.Parts)-1
}

// partName returns the name of another part of the same base.
func partName(name string, part int) string { return name[:len(name)-5] + fmt.Sprintf("%05d", part) }
