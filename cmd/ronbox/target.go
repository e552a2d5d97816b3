package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"strings"

	"ronbox/appliance"
	"ronbox/appliance/config"
	"ronbox/httpapi/client"
)

const (
	maxTokenFile    = 64 << 10
	dataDirVariable = "RONBOX_NODE__DATA_DIR"
)

// node connects to the node that the flags name: its URL, its socket, or the socket in its data directory.
func (a *app) node() (*client.Client, error) {
	if a.flags.url != "" {
		return a.nodeAt("")
	}
	socket, err := a.socketPath()
	if err != nil {
		return nil, err
	}
	return a.nodeAt(socket)
}

// nodeAt connects to the node that --url names, or else to the one behind socket.
func (a *app) nodeAt(socket string) (*client.Client, error) {
	if a.flags.timeout < 0 {
		return nil, usage("--timeout %s: want a time above 0", a.flags.timeout)
	}
	if u, err := url.Parse(a.flags.url); err == nil && u.User != nil {
		return nil, usage("--url takes no name and no password: a token in --token-file says who asks")
	}
	o := client.Options{URL: a.flags.url, CAFile: a.flags.caFile, Timeout: a.flags.timeout, UserAgent: "ronbox/" + build().Version}
	if a.flags.tokenFile != "" {
		token, err := readToken(a.flags.tokenFile)
		if err != nil {
			return nil, err
		}
		o.Token = token
	}
	if a.flags.url == "" {
		o.Socket = socket
	}
	c, err := client.New(o)
	if _, file := errors.AsType[*fs.PathError](err); file {
		return nil, err
	}
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
	if err == nil {
		return cfg.SocketPath(), nil
	}
	if usual := a.usualConfig().SocketPath(); exists(usual) {
		return usual, nil
	}
	return "", err
}

// usualConfig stands in for a configuration with a fault: that must keep nobody from the node that runs.
func (a *app) usualConfig() *config.Config {
	cfg := config.Default()
	cfg.Node.DataDir = cmp.Or(a.flags.dataDir, os.Getenv(dataDirVariable), cfg.Node.DataDir)
	return cfg
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
	return asToken(path, raw, exitFailed)
}

// asToken takes the token out of a file's bytes; what is none ends with the code bad. It goes into a header.
func asToken(name string, raw []byte, bad int) (string, error) {
	token := strings.TrimSpace(string(raw))
	switch {
	case token == "":
		return "", failed(bad, "malformed", notAToken, "%s is empty", name)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", failed(bad, "malformed", notAToken, "%s holds no token", name)
	}
	return token, nil
}

const notAToken = "a token is one line of base64url"

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
