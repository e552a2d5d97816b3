package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"ronbox/appliance"
	"ronbox/appliance/config"
	"ronbox/httpapi/client"
)

const maxTokenFile = 64 << 10

// node connects to the node that the flags name: its URL, its socket, or the socket in its data directory.
func (a *app) node() (*client.Client, error) {
	if a.flags.timeout < 0 {
		return nil, usage("--timeout %s: want a time above 0", a.flags.timeout)
	}
	o := client.Options{URL: a.flags.url, Timeout: a.flags.timeout, UserAgent: "ronbox/" + build().Version}
	if a.flags.tokenFile != "" {
		token, err := readToken(a.flags.tokenFile)
		if err != nil {
			return nil, err
		}
		o.Token = token
	}
	if a.flags.url == "" {
		socket, err := a.socketPath()
		if err != nil {
			return nil, err
		}
		o.Socket = socket
	}
	c, err := client.New(o)
	if err != nil {
		return nil, usage("%w", err)
	}
	return c, nil
}

func (a *app) socketPath() (string, error) {
	if a.flags.socket != "" {
		return a.flags.socket, nil
	}
	cfg, err := a.loadConfig()
	if err != nil {
		return "", err
	}
	return cfg.SocketPath(), nil
}

// loadConfig reads the config that the flags and the environment name.
func (a *app) loadConfig() (*config.Config, error) {
	cfg, err := config.Load(config.LoadOptions{File: a.flags.config, DataDir: a.flags.dataDir, Env: os.Environ()})
	if err != nil {
		return nil, &failure{verdict: verdict{exitConfig, "config", "correct the keys that are named"}, err: err}
	}
	return cfg, nil
}

// database is the path of the node's database file.
func (a *app) database() (string, error) {
	cfg, err := a.loadConfig()
	if err != nil {
		return "", err
	}
	return cfg.Path(appliance.DatabaseName), nil
}

func readToken(path string) (string, error) {
	raw, err := readFile(path, maxTokenFile)
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	token := strings.TrimSpace(string(raw))
	if token == "" {
		return "", fmt.Errorf("token file %s is empty", path)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) { // it goes into a header
		return "", failed(exitFailed, "malformed", "a token is one line of base64url", "%s holds no token", path)
	}
	return token, nil
}

// readInput reads a file, or stdin for "-".
func (a *app) readInput(path string, limit int64) ([]byte, error) {
	if path != "-" {
		return readFile(path, limit)
	}
	return readAll("stdin", a.stdin, limit)
}

// readFile reads a whole file of at most limit bytes.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	return readAll(path, f, limit)
}

func readAll(name string, r io.Reader, limit int64) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, reading(name, err)
	}
	if int64(len(raw)) > limit {
		return nil, failed(exitFailed, "too_large", "", "%s is larger than %s", name, byteUnit(limit))
	}
	return raw, nil
}

// reading says what could not be read, once: the errors of os do.
func reading(name string, err error) error {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return err
	}
	return fmt.Errorf("read %s: %w", name, err)
}

// writeFile writes a new file through a temporary one: whole or not at all, and never over an old one.
func writeFile(path string, data []byte, mode os.FileMode) error {
	if _, err := os.Lstat(path); err == nil {
		return failed(exitFailed, "exists", "choose another path or move the old file away", "%s exists", path)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".ronbox-*")
	if err != nil {
		return writing(path, err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // gone after the link
	if err := fill(tmp, data, mode); err != nil {
		return writing(path, err)
	}
	if err := os.Link(tmp.Name(), path); err != nil { // refuses what came in between, as a rename would not
		return writing(path, err)
	}
	return nil
}

// writing names the file that was asked for, not the temporary one.
func writing(path string, err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	} else if l, ok := errors.AsType[*os.LinkError](err); ok {
		err = l.Err
	}
	return fmt.Errorf("write %s: %w", path, err)
}

func fill(f *os.File, data []byte, mode os.FileMode) error {
	defer func() { _ = f.Close() }() // a second close after the checked one does nothing
	if err := f.Chmod(mode); err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}
