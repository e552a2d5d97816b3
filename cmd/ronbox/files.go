package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// fresh refuses a path where something is.
func fresh(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return failed(exitFailed, "exists", "choose another path or move the old file away", "%s exists", path)
	}
	return nil
}

// writeFile writes a new file through a temporary one: whole or not at all, and never over an old one.
func writeFile(path string, data []byte, mode os.FileMode) error {
	return produceFile(path, mode, bytesTo(data))
}

// produceFile is writeFile for what is too large to hold: write fills the temporary file.
func produceFile(path string, mode os.FileMode, write func(io.Writer) error) error {
	if err := fresh(path); err != nil {
		return err
	}
	return through(path, mode, write, os.Link) // refuses what came in between, as a rename would not
}

// replaceFile is writeFile over what may be there.
func replaceFile(path string, data []byte, mode os.FileMode) error {
	return through(path, mode, bytesTo(data), os.Rename)
}

func bytesTo(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// through fills a temporary file beside path and puts it in place. What fails leaves nothing behind.
func through(path string, mode os.FileMode, write func(io.Writer) error, place func(tmp, path string) error) error {
	dir, _ := filepath.Split(path) // which unlike Dir leaves ".." to the system, as the last step does
	if dir == "" {
		dir = "."
	}
	tmp, err := os.CreateTemp(dir, ".ronbox-*")
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("write %s: %w", path, p.Err)
	}
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // gone after a rename
	if err := fill(tmp, mode, write); err != nil {
		return writing(path, tmp.Name(), err)
	}
	return writing(path, tmp.Name(), place(tmp.Name(), path))
}

// writing names the file that was asked for in place of the temporary one. What is no fault of either stays as it is.
func writing(path, tmp string, err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok && p.Path == tmp {
		return fmt.Errorf("write %s: %w", path, p.Err)
	}
	if l, ok := errors.AsType[*os.LinkError](err); ok && l.Old == tmp {
		return fmt.Errorf("write %s: %w", path, l.Err)
	}
	return err
}

func fill(f *os.File, mode os.FileMode, write func(io.Writer) error) error {
	defer func() { _ = f.Close() }() // a second close after the checked one does nothing
	if err := f.Chmod(mode); err != nil {
		return err
	}
	if err := write(f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}
