package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// lab tries mutants. It is read only once it is open.
type lab struct {
	scratch string
	own     map[string]*suite // by package
	guards  []*suite
}

// openLab runs all tests once on the code as it is.
func openLab(ctx context.Context, o *options, dir string, of []target, say io.Writer) (_ *lab, err error) {
	l := &lab{own: map[string]*suite{}}
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
		if l.own[p.ImportPath], err = l.measured(ctx, p, o, o.first, say); err != nil {
			return nil, err
		}
	}
	for _, pattern := range o.guards {
		found, err := list(ctx, dir, pattern)
		if err != nil {
			return nil, err
		}
		for i := range found {
			s, err := l.measured(ctx, &found[i], o, "", say)
			if err != nil {
				return nil, err
			}
			l.guards = append(l.guards, s)
		}
	}
	return l, nil
}

// measured is a suite whose stages pass and have their limits.
func (l *lab) measured(ctx context.Context, p *goPackage, o *options, first string, say io.Writer) (*suite, error) {
	s, err := newSuite(ctx, p, o.seed)
	if err != nil {
		return nil, err
	}
	binary := filepath.Join(l.scratch, "base")
	if err := s.build(ctx, "", binary); err != nil {
		return nil, err
	}
	if s.stages = []stage{{}}; first != "" {
		s.stages = []stage{{args: []string{"-test.run=" + first}}, {}}
	}
	for i := range s.stages {
		if err := l.time(ctx, s, &s.stages[i], binary, o.timeout, say); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// time runs a stage, which must pass, and gives it a limit.
func (l *lab) time(ctx context.Context, s *suite, at *stage, binary string, least time.Duration, say io.Writer) error {
	begin := time.Now()
	why, said, err := s.run(ctx, binary, filepath.Join(l.scratch, "t"), 0, at.args...)
	if err != nil {
		return err
	}
	if why != "" {
		return fmt.Errorf("the tests of %s fail as they are: %s\n%s", s.pkg, why, said)
	}
	took := time.Since(begin)
	at.limit = max(least, patience*took)
	_, err = fmt.Fprintf(say, "%s: %s pass in %.1f s\n", s.pkg, cmp.Or(strings.Join(at.args, " "), "its tests"), took.Seconds())
	return err
}

// patience is how many times longer than usual tests may take on a machine that others use too.
const patience = 5

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
		binary := filepath.Join(at, "test")
		if err := s.build(ctx, overlay, binary); err != nil {
			return "", err
		}
		for _, stage := range s.stages {
			if by, err = s.fails(ctx, binary, filepath.Join(at, "t"), stage); by != "" || err != nil {
				return by, err
			}
		}
	}
	return "", nil
}
