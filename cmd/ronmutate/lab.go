package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// lab tries mutants. It is read only once it is open.
type lab struct {
	scratch string
	timeout time.Duration
	first   string
	own     map[string]*suite // by package
	guards  []*suite
}

// openLab runs all tests once on the code as it is.
func openLab(ctx context.Context, o *options, dir string, of []target, say io.Writer) (_ *lab, err error) {
	l := &lab{timeout: o.timeout, first: o.first, own: map[string]*suite{}}
	if l.scratch, err = os.MkdirTemp("", "mut"); err != nil { // short: tests make sockets below it
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	for i := range of {
		p := &of[i].goPackage
		if l.own[p.ImportPath] != nil {
			continue
		}
		if l.own[p.ImportPath], err = l.measured(ctx, p, o.seed, say); err != nil {
			return nil, err
		}
	}
	for _, pattern := range o.guards {
		found, err := list(ctx, dir, pattern)
		if err != nil {
			return nil, err
		}
		for i := range found {
			s, err := l.measured(ctx, &found[i], o.seed, say)
			if err != nil {
				return nil, err
			}
			l.guards = append(l.guards, s)
		}
	}
	return l, nil
}

// measured is a suite that passes, with the time it takes.
func (l *lab) measured(ctx context.Context, p *goPackage, seed uint64, say io.Writer) (*suite, error) {
	s, err := newSuite(ctx, p, seed)
	if err != nil {
		return nil, err
	}
	binary := filepath.Join(l.scratch, "base")
	if err := s.build(ctx, "", binary); err != nil {
		return nil, err
	}
	begin := time.Now()
	why, err := s.run(ctx, binary, filepath.Join(l.scratch, "t"), 0)
	if err != nil {
		return nil, err
	}
	if why != "" {
		return nil, fmt.Errorf("the tests of %s fail as they are: %s", p.ImportPath, why)
	}
	s.base = time.Since(begin)
	_, err = fmt.Fprintf(say, "%s: its tests pass in %.1f s\n", p.ImportPath, s.base.Seconds())
	return s, err
}

func (l *lab) close() error { return os.RemoveAll(l.scratch) }

// verdict is what became of a mutant.
type verdict struct {
	*mutant
	Killed  bool    `json:"killed"`
	By      string  `json:"by,omitempty"` // a test, "time", or how the test binary ended
	Seconds float64 `json:"seconds"`
	none    bool    // it does not compile
}

// try builds m and runs its tests. Nobody else has the number at the same time.
func (l *lab) try(ctx context.Context, m *mutant, number int) (verdict, error) {
	begin := time.Now()
	v := verdict{mutant: m}
	at := filepath.Join(l.scratch, strconv.Itoa(number))
	if err := os.Mkdir(at, 0o700); err != nil {
		return v, err
	}
	overlay, err := lay(at, m)
	if err != nil {
		return v, err
	}
	v.By, err = l.judge(ctx, at, overlay, m)
	v.Killed, v.Seconds = v.By != "", time.Since(begin).Seconds()
	if v.none = errors.Is(err, errCompile); v.none {
		err = nil
	}
	return v, errors.Join(err, os.RemoveAll(at))
}

// lay writes the changed file and the overlay that puts it in the place of the real one.
func lay(at string, m *mutant) (overlay string, err error) {
	src, err := os.ReadFile(m.path)
	if err != nil {
		return "", err
	}
	changed := filepath.Join(at, filepath.Base(m.path))
	if err := os.WriteFile(changed, m.apply(src), 0o600); err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {m.path: changed}})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(at, "overlay.json")
	return overlay, os.WriteFile(overlay, replace, 0o600)
}

// judge asks the tests of the mutant's package, those that are to be first before the others, and then its other guards.
func (l *lab) judge(ctx context.Context, at, overlay string, m *mutant) (by string, err error) {
	for _, s := range append([]*suite{l.own[m.Package]}, l.guards...) {
		binary, limit := filepath.Join(at, "test"), max(l.timeout, patience*s.base)
		if err := s.build(ctx, overlay, binary); err != nil {
			return "", err
		}
		if l.first != "" && s.pkg == m.Package {
			if by, err = s.run(ctx, binary, filepath.Join(at, "t"), limit, "-test.run="+l.first); by != "" || err != nil {
				return by, err
			}
		}
		if by, err = s.run(ctx, binary, filepath.Join(at, "t"), limit); by != "" || err != nil {
			return by, err
		}
	}
	return "", nil
}

// patience is how many times longer than usual tests may take on a machine that others use too.
const patience = 5
