package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"ronbox/appliance/b3"
)

// Check is a verification by an engine: of chains, sums and references.
type Check struct {
	Name   string
	Schema int // the oldest schema that Run can read; the check is skipped for an older file
	Run    func(Reader) error
}

// Step is the result of one part of a verification.
type Step struct {
	Name   string `json:"name"` // manifest, size, b3, open, pages, buckets, names, audit, state_hash, or a Check's
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// Report is the result of Verify.
type Report struct {
	File      string            `json:"file"`
	OK        bool              `json:"ok"`
	Problem   string            `json:"problem,omitzero"` // the first step that failed
	Steps     []Step            `json:"steps"`
	Manifest  bool              `json:"manifest"` // the file has a manifest
	Size      int64             `json:"size"`
	B3        b3.Digest         `json:"b3"`
	StateHash b3.Digest         `json:"state_hash"`
	Buckets   map[string]uint64 `json:"buckets"` // rows by bucket
	Info      Info              `json:"-"`
}

// Verify verifies a file that no process writes: its manifest if it has one, its pages, the audit
// chain, the state hash and the checks of the engines. If buckets is nil it uses the declarations
// recorded in the file. progress, which may be nil, counts hashed bytes. A damaged file results in
// a Report that is not OK. Verify returns an error if the file cannot be read: it is missing,
// ErrLocked, or the cause of ctx.
func Verify(
	ctx context.Context,
	file string,
	buckets []*Bucket,
	checks []Check,
	progress func(done, total int64),
) (Report, error) {
	v := &verifier{ctx: ctx, file: file, buckets: buckets, checks: checks, progress: progress}
	m, err := ReadManifest(file)
	switch {
	case err == nil:
		v.want = &m
	case !errors.Is(err, fs.ErrNotExist):
		return Report{File: file, Problem: err.Error(), Steps: []Step{{"manifest", false, err.Error()}}}, nil
	}
	return v.run()
}

// verifier is one verification of one file.
type verifier struct {
	ctx      context.Context
	file     string
	want     *Manifest // may be nil
	buckets  []*Bucket
	checks   []Check
	progress func(done, total int64)
	rep      Report
}

// run performs the steps in order and stops at the first failure, because later steps would read a
// damaged file.
func (v *verifier) run() (Report, error) {
	v.rep = Report{File: v.file, Manifest: v.want != nil}
	err := v.steps()
	if err == nil && v.ctx.Err() != nil {
		err = context.Cause(v.ctx)
	}
	v.rep.OK = err == nil && v.rep.Problem == ""
	return v.rep, err
}

func (v *verifier) steps() error {
	if ok, err := v.bytes(); err != nil || !ok {
		return err
	}
	r, err := OpenReader(v.file)
	if errors.Is(err, ErrCorrupt) || errors.Is(err, ErrSchema) {
		v.note("open", "", err)
		return nil
	}
	if err != nil {
		return err
	}
	v.rep.Info = r.info
	if v.want != nil {
		err = v.want.describes(r.info)
	}
	if err != nil {
		v.note("manifest", "", err)
	} else {
		v.content(r)
	}
	return r.Close()
}

// bytes compares the bytes of the file with its manifest.
func (v *verifier) bytes() (ok bool, err error) {
	st, err := os.Stat(v.file)
	if err != nil {
		return false, err
	}
	v.rep.Size = st.Size()
	if v.want != nil && !v.note("size", fmt.Sprintf("%d bytes", v.rep.Size), differ(v.want.Size, v.rep.Size)) {
		return false, nil
	}
	c := &copier{ctx: v.ctx, hash: b3.New(), total: v.rep.Size, progress: v.progress}
	if v.rep.B3, err = hashFile(v.file, c); err != nil {
		return false, err
	}
	if v.want != nil && !v.note("b3", v.rep.B3.String(), differ(v.want.B3, v.rep.B3)) {
		return false, nil
	}
	return true, nil
}

// content verifies the file as a database.
func (v *verifier) content(r *ReadOnly) {
	if v.buckets == nil {
		v.buckets = r.buckets
	}
	if !v.note("pages", fmt.Sprintf("%d pages", r.size/PageSize), r.checkPages(v.ctx)) {
		return
	}
	if !v.read(r, "buckets", v.countRows) || !v.read(r, "names", v.names) || !v.read(r, "audit", v.auditChain) ||
		!v.read(r, "state_hash", v.stateHash) {
		return
	}
	for _, c := range v.checks {
		if r.info.Schema < c.Schema {
			skipped := fmt.Sprintf(
				"not checked: the file has schema %d; `ronbox db migrate` migrates it to %d",
				r.info.Schema,
				Schema,
			)
			v.note(c.Name, skipped, nil)
			continue
		}
		if !v.read(r, c.Name, func(rd Reader) (string, error) { return "", c.Run(rd) }) {
			return
		}
	}
}

// read performs one step in its own read transaction.
func (v *verifier) read(r *ReadOnly, name string, step func(Reader) (string, error)) bool {
	var detail string
	err := guarded(func() error { // a check may panic on unexpected data
		return r.View(v.ctx, func(rd Reader) (err error) {
			detail, err = step(rd)
			return err
		})
	})
	return v.note(name, detail, err)
}

// note records a step. It records nothing once ctx has ended.
func (v *verifier) note(name, detail string, err error) bool {
	if v.ctx.Err() != nil {
		return false
	}
	if err != nil {
		detail = err.Error()
		v.rep.Problem = name + ": " + detail
	}
	v.rep.Steps = append(v.rep.Steps, Step{name, err == nil, detail})
	return err == nil
}

func (v *verifier) countRows(r Reader) (string, error) {
	v.rep.Buckets = make(map[string]uint64, len(v.buckets))
	var all uint64
	for _, b := range v.buckets {
		var n uint64
		for leaf := range leaves(r, b) {
			for range r.Range(leaf, nil, nil) {
				n++
			}
		}
		v.rep.Buckets[b.Name], all = n, all+n
	}
	detail := fmt.Sprintf("%d rows in %d buckets", all, len(v.buckets))
	if v.want != nil && v.want.Buckets != nil && !maps.Equal(v.want.Buckets, v.rep.Buckets) {
		return detail, fmt.Errorf("rows by bucket are %v, but the manifest has %v", v.rep.Buckets, v.want.Buckets)
	}
	return detail, nil
}

// names checks the names of the rows, if a node has counted them.
func (v *verifier) names(r Reader) (string, error) {
	if err := checkOwnNames(r); err != nil {
		return "", err
	}
	if r.Get(localBucket, keyNamed) == nil {
		for range r.Range(localBucket, []byte(namesPrefix), namesEnd) {
			return "", &RowError{localBucket.Name, keyNamed, errAbsent}
		}
		return "a start of the node will count them", nil
	}
	counted := slices.DeleteFunc(slices.Clone(v.buckets), func(b *Bucket) bool { return b.Proven })
	return fmt.Sprintf("names of %d buckets", len(counted)), CheckNames(r, 0, counted...)
}

func (v *verifier) auditChain(r Reader) (string, error) {
	rows, err := checkAudit(r, v.rep.Info.position())
	return fmt.Sprintf("%d rows", rows), err
}

func (v *verifier) stateHash(r Reader) (string, error) {
	v.rep.StateHash = StateHash(r, v.buckets)
	if v.want != nil && !v.want.StateHash.IsZero() {
		return v.rep.StateHash.String(), differ(v.want.StateHash, v.rep.StateHash)
	}
	return v.rep.StateHash.String(), nil
}

func differ[T comparable](want, got T) error {
	if want != got {
		return fmt.Errorf("is %v, but the manifest has %v", got, want)
	}
	return nil
}
