package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// goPackage is what go list says of a package.
type goPackage struct {
	ImportPath   string
	Dir          string
	GoFiles      []string
	TestGoFiles  []string
	XTestGoFiles []string
	Module       *struct{ Dir string }
}

// target is a package whose files are changed.
type target struct {
	goPackage
	files []string
}

// targets finds what arguments of the form package[:file,file...] name.
func targets(ctx context.Context, dir string, args []string) ([]target, error) {
	var all []target
	for _, arg := range args {
		pattern, names, _ := strings.Cut(arg, ":")
		found, err := list(ctx, dir, pattern)
		if err != nil {
			return nil, err
		}
		for _, p := range found {
			t := target{p, p.GoFiles}
			if names != "" {
				t.files = strings.Split(names, ",")
			}
			for _, name := range t.files {
				if !slices.Contains(p.GoFiles, name) {
					return nil, fmt.Errorf("%s has no file %q that is built and is no test", p.ImportPath, name)
				}
			}
			all = append(all, t)
		}
	}
	return all, nil
}

// list asks go for the packages of a pattern; the folder of one does as well.
func list(ctx context.Context, dir, pattern string) ([]goPackage, error) {
	if s, err := os.Stat(filepath.Join(dir, pattern)); err == nil && s.IsDir() && !filepath.IsAbs(pattern) {
		pattern = "./" + filepath.Clean(pattern)
	}
	out, err := ask(ctx, dir, "list", "-json=ImportPath,Dir,GoFiles,TestGoFiles,XTestGoFiles,Module", "--", pattern)
	if err != nil {
		return nil, err
	}
	var found []goPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list %s: %w", pattern, err)
		}
		found = append(found, p)
	}
}

// draws tells whether the tests of a package know rapid, which draws cases at random and writes those that fail into the source tree.
func draws(ctx context.Context, dir, pkg string) (bool, error) {
	out, err := ask(ctx, dir, "list", "-test", "-deps", "-f", "{{.ImportPath}}", "--", pkg)
	return slices.Contains(strings.Fields(string(out)), "pgregory.net/rapid"), err
}

func ask(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("go %s: %s", args[0], bytes.TrimSpace(e.Stderr))
	} else if err != nil {
		return nil, fmt.Errorf("go %s: %w", args[0], err)
	}
	return out, nil
}

// mutants lists all mutants of a target.
func (t *target) mutants() ([]mutant, error) {
	root := t.Dir
	if t.Module != nil {
		root = t.Module.Dir
	}
	var all []mutant
	for _, name := range t.files {
		path := filepath.Join(t.Dir, name)
		src, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		file, err := filepath.Rel(root, path)
		if err != nil {
			return nil, err
		}
		found, err := find(mutant{Package: t.ImportPath, File: filepath.ToSlash(file), path: path}, src)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}
