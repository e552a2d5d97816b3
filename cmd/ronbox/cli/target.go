package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"ronbox/appliance"
	"ronbox/appliance/config"
	"ronbox/httpapi/client"
	"ronbox/store"
)

// Online makes RunE of a verb that asks the node; open gives the client of its service.
func Online[C any](a *App, open func(*client.Client) C, run func(ctx context.Context, c C, args []string) error) RunE {
	return a.Verb(func(ctx context.Context, args []string) error {
		c, err := a.Client()
		if err != nil {
			return err
		}
		defer c.Close()
		return run(ctx, open(c), args)
	})
}

// Ask makes RunE of a verb that shows one answer of the node.
func Ask[C, T any](a *App, open func(*client.Client) C, call func(c C, ctx context.Context) (T, error), human func(Table, T)) RunE {
	return Online(a, open, func(ctx context.Context, c C, _ []string) error {
		doc, err := call(c, ctx)
		if err != nil {
			return err
		}
		return a.Show(doc, func(t Table) { human(t, doc) })
	})
}

// Client connects to the node that the flags name: its URL, its socket, or the socket in its data directory.
func (a *App) Client() (*client.Client, error) {
	if a.Flags.URL != "" {
		return a.ClientAt("")
	}
	socket, err := a.socketPath()
	if err != nil {
		return nil, err
	}
	return a.ClientAt(socket)
}

// ClientAt connects to the node that --url names, or else to the one behind socket.
func (a *App) ClientAt(socket string) (*client.Client, error) {
	if a.Flags.Timeout < 0 {
		return nil, Usage("--timeout %s: want a time above 0", a.Flags.Timeout)
	}
	if u, err := url.Parse(a.Flags.URL); err == nil && u.User != nil {
		return nil, Usage("--url takes no name and no password: a token in --token-file says who asks")
	}
	o := client.Options{URL: a.Flags.URL, CAFile: a.Flags.CAFile, Timeout: a.Flags.Timeout, UserAgent: "ronbox/" + a.Build.Version}
	if a.Flags.TokenFile != "" {
		token, err := ReadToken(a.Flags.TokenFile)
		if err != nil {
			return nil, err
		}
		o.Token = token
	}
	if a.Flags.URL == "" {
		o.Socket = socket
	}
	c, err := client.New(o)
	if _, file := errors.AsType[*fs.PathError](err); file {
		return nil, err
	}
	if err != nil {
		return nil, Usage("%w", err)
	}
	return c, nil
}

func (a *App) socketPath() (string, error) {
	if a.Flags.Socket != "" {
		return a.Flags.Socket, nil
	}
	cfg, err := a.Config()
	if err == nil {
		return cfg.SocketPath(), nil
	}
	if usual := a.FallbackConfig().SocketPath(); Exists(usual) {
		return usual, nil
	}
	return "", err
}

// DataDirVariable is the environment variable of --data-dir.
const DataDirVariable = "RONBOX_NODE__DATA_DIR"

// ConfigOptions are the sources of the configuration by the flags and the environment; a file given wins over --config.
func (a *App) ConfigOptions(file string) config.LoadOptions {
	if file == "" {
		file = a.Flags.Config
	}
	return config.LoadOptions{File: file, DataDir: a.Flags.DataDir, Env: os.Environ()}
}

// Config reads the config that the flags and the environment name.
func (a *App) Config() (*config.Config, error) {
	cfg, err := config.Load(a.ConfigOptions(""))
	if err != nil {
		return nil, ConfigFailure(err)
	}
	return cfg, nil
}

// FallbackConfig stands in for a configuration with a fault, which must keep nobody from a node that runs.
func (a *App) FallbackConfig() *config.Config {
	cfg := config.Default()
	cfg.Node.DataDir = cmp.Or(a.Flags.DataDir, os.Getenv(DataDirVariable), cfg.Node.DataDir)
	return cfg
}

// configFault is a config.Fault for --json.
type configFault struct {
	Where  string `json:"where,omitzero"`
	Key    string `json:"key,omitzero"`
	Value  string `json:"value,omitzero"`
	Reason string `json:"reason"`
}

// ConfigFailure is the failure to read a configuration, with every fault that was found.
func ConfigFailure(err error) error {
	faults := []configFault{}
	for _, f := range config.Faults(err) {
		faults = append(faults, configFault{f.Where, f.Key, f.Value, f.Reason})
	}
	v := Outcome{ExitConfig, "config", "correct the keys that are named"}
	switch {
	case errors.Is(err, fs.ErrPermission):
		v = Classify(fs.ErrPermission)
	case errors.Is(err, fs.ErrNotExist):
		v.Next = "check the path"
	}
	return &Failure{Outcome: v, Err: err, Details: map[string]any{"faults": faults}}
}

// DatabasePath is the path of the node's database file.
func (a *App) DatabasePath() (string, error) {
	cfg, err := a.Config()
	if err != nil {
		return "", err
	}
	return cfg.Path(appliance.DatabaseName), nil
}

// FileInstead is the database file to read after err, if that says that the node which was asked does not run.
func (a *App) FileInstead(err error) (file string, ok bool) {
	if !errors.Is(err, client.ErrNotReachable) || a.Flags.URL != "" || a.Flags.Socket != "" {
		return "", false
	}
	file, err = a.DatabasePath()
	return file, err == nil && Exists(file) // without a file the missing node is the better message
}

// DatabaseFile is the database file that an offline verb is about: the one named, or that of the data directory.
func (a *App) DatabaseFile(args []string) (string, error) {
	if len(args) == 1 {
		return args[0], CheckRegular(args[0])
	}
	file, err := a.DatabasePath()
	if err != nil {
		return "", err
	}
	err = CheckRegular(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", Fail(ExitFailed, "not_found", "make a node with `ronbox init`, or correct --data-dir", "there is no database in %s", filepath.Dir(file))
	}
	return file, err
}

// RewritableFile is DatabaseFile for a verb that rewrites the file. A snapshot is refused: its manifest would no longer fit.
func (a *App) RewritableFile(args []string) (string, error) {
	file, err := a.DatabaseFile(args)
	if err != nil {
		return "", err
	}
	if _, err := store.ReadManifest(file); !errors.Is(err, fs.ErrNotExist) {
		return "", Fail(ExitFailed, "snapshot", "restore it into an empty --data-dir with `ronbox db restore`, and work there",
			"%s is a snapshot: its manifest would no longer fit it", file)
	}
	return file, nil
}

// ReadDatabase opens a database file that no node holds and closes it after use.
func ReadDatabase(file string, use func(*store.ReadOnly) error) error {
	if err := CheckRegular(file); err != nil {
		return err
	}
	r, err := store.OpenReader(file)
	if err != nil {
		return err
	}
	return errors.Join(use(r), r.Close())
}

// ViewDatabase is ReadDatabase within one read transaction.
func ViewDatabase(ctx context.Context, file string, use func(store.Reader) error) error {
	return ReadDatabase(file, func(r *store.ReadOnly) error { return r.View(ctx, use) })
}

// CheckRegular refuses anything but a regular file: a directory would be called a damaged database, a pipe would block.
func CheckRegular(file string) error {
	st, err := os.Stat(file)
	switch {
	case err != nil:
		return err
	case st.IsDir():
		return Fail(ExitFailed, "is_directory", "name the database file in it, such as "+filepath.Join(file, appliance.DatabaseName), "%s is a directory", file)
	case !st.Mode().IsRegular():
		return Fail(ExitFailed, "not_a_file", "name a database file", "%s is no regular file", file)
	}
	return nil
}

const (
	MaxTokenFile = 64 << 10
	NotAToken    = "a token is one line of base64url" // advice about a file that holds none
)

// ReadToken reads a token file.
func ReadToken(path string) (string, error) {
	raw, err := ReadFile(path, MaxTokenFile)
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	return ParseToken(path, raw, ExitFailed)
}

// ParseToken takes the token out of a file's bytes, fit for a header; bad is the exit code without one.
func ParseToken(name string, raw []byte, bad int) (string, error) {
	token := strings.TrimSpace(string(raw))
	switch {
	case token == "":
		return "", Fail(bad, "malformed", NotAToken, "%s is empty", name)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", Fail(bad, "malformed", NotAToken, "%s holds no token", name)
	}
	return token, nil
}
