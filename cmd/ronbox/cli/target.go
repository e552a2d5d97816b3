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
	"slices"
	"strings"

	"ronbox/cmd/ronbox/server/config"
	"ronbox/httpapi/client"
	"ronbox/store"
	"ronbox/store/lock"
)

// Online returns the RunE of a verb that calls the node. open returns the client of its service.
func Online[C any](a *App, open func(*client.Client) C, run func(ctx context.Context, c C, args []string) error) RunE {
	return a.verb(func(ctx context.Context, args []string) error {
		c, err := a.Client()
		if err != nil {
			return err
		}
		defer c.Close()
		asked := open(c)
		return a.hidden(asked, run(ctx, asked, args))
	})
}

// Ask returns the RunE of a verb that shows one answer of the node.
func Ask[C, T any](
	a *App,
	open func(*client.Client) C,
	call func(c C, ctx context.Context) (T, error),
	human func(Table, T),
) RunE {
	return Online(a, open, func(ctx context.Context, c C, _ []string) error {
		doc, err := call(c, ctx)
		if err != nil {
			return err
		}
		return a.Show(doc, func(t Table) { human(t, doc) })
	})
}

// URLVariable is the environment variable of --url.
const URLVariable = "RONBOX_URL"

// URLs returns the URLs of --url, or of RONBOX_URL if no other flag names the node.
func (a *App) URLs() []string {
	list := a.Flags.URL
	if list == "" && a.Flags.Socket == "" && a.Flags.DataDir == "" && a.Flags.Config == "" {
		list = a.Variable(URLVariable)
	}
	return client.SplitURLs(list)
}

// Client returns a client of the node that the flags and the environment name: by its URLs, its
// socket, or the socket in its data directory.
func (a *App) Client() (*client.Client, error) {
	if urls := a.URLs(); urls != nil {
		return a.client(client.Options{URLs: urls})
	}
	socket, err := a.socketPath()
	if err != nil {
		return nil, err
	}
	return a.ClientAt(socket)
}

// ClientAt returns a client of the node at --url, or else at socket.
func (a *App) ClientAt(socket string) (*client.Client, error) {
	if a.Flags.URL != "" {
		return a.client(client.Options{URLs: client.SplitURLs(a.Flags.URL)})
	}
	return a.client(client.Options{Socket: socket, Starting: func() bool { return a.starting(socket) }})
}

// client returns a client of the node at the URLs or the socket of o.
func (a *App) client(o client.Options) (*client.Client, error) {
	if a.Flags.Timeout < 0 {
		return nil, Usage("--timeout %s: want a time above 0", a.Flags.Timeout)
	}
	for _, one := range o.URLs {
		if u, err := url.Parse(one); err == nil && u.User != nil {
			return nil, Usage("--url takes no user name and password: pass a token with --token-file")
		}
	}
	o.CAFile, o.Timeout, o.UserAgent = a.Flags.CAFile, a.Flags.Timeout, "ronbox/"+a.Build.Version
	if a.Flags.TokenFile != "" {
		token, err := ReadToken(a.Flags.TokenFile)
		if err != nil {
			return nil, err
		}
		o.Token = token
	}
	if a.Flags.PrintCurl {
		o.Transport = &curl{a, o.Socket}
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

// starting reports whether another process has locked the directory of the node that serves on
// socket: it serves, or is about to. It reports false for a node that stops, and notes its
// process.
func (a *App) starting(socket string) bool {
	dir := filepath.Dir(socket)
	if cfg, err := a.Config(); err == nil && cfg.SocketPath() == socket {
		dir = cfg.Node.DataDir
	}
	if by := lock.Holder(filepath.Join(dir, config.StoppingName)); by != nil {
		a.stopping.Store(by)
		return false
	}
	for _, name := range []string{config.UnfinishedName, config.SecretName, config.DatabaseName} {
		if by := lock.Holder(filepath.Join(dir, name)); by != nil && by.PID != os.Getpid() {
			return true
		}
	}
	return false
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

// ConfigOptions returns the sources of the configuration. file, if not empty, replaces --config.
func (a *App) ConfigOptions(file string) config.LoadOptions {
	if file == "" {
		file = a.Flags.Config
	}
	return config.LoadOptions{File: file, DataDir: a.Flags.DataDir, Env: slices.Clone(a.Env)}
}

// Config loads the configuration that the flags and the environment name.
func (a *App) Config() (*config.Config, error) {
	cfg, err := config.Load(a.ConfigOptions(""))
	if err != nil {
		return nil, ConfigFailure(err)
	}
	return cfg, nil
}

// Variable returns the value of an environment variable, or "".
func (a *App) Variable(name string) string {
	for _, v := range slices.Backward(a.Env) {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// FallbackConfig returns a default configuration. It is used if the configuration has a fault, so
// that a running node can still be reached.
func (a *App) FallbackConfig() *config.Config {
	cfg := config.Default()
	cfg.Node.DataDir = cmp.Or(a.Flags.DataDir, a.Variable(DataDirVariable), cfg.Node.DataDir)
	return cfg
}

// configFault is a config.Fault for --json.
type configFault struct {
	Where  string `json:"where,omitzero"`
	Key    string `json:"key,omitzero"`
	Value  string `json:"value,omitzero"`
	Reason string `json:"reason"`
}

// ConfigFailure returns the failure of loading a configuration, with all faults.
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

// DatabasePath returns the path of the node's database file.
func (a *App) DatabasePath() (string, error) {
	cfg, err := a.Config()
	if err != nil {
		return "", err
	}
	return cfg.Path(config.DatabaseName), nil
}

// FileInstead returns the database file to read if err shows that the node does not run.
func (a *App) FileInstead(err error) (file string, ok bool) {
	if !errors.Is(err, client.ErrNotReachable) || a.URLs() != nil || a.Flags.Socket != "" {
		return "", false
	}
	file, err = a.DatabasePath()
	return file, err == nil && Exists(file) // without a file, report the missing node
}

// DatabaseFile returns the database file of an offline verb: the argument, or the file of the data
// directory.
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
		return "", Fail(
			ExitFailed,
			"not_found",
			"make a node with `ronbox init`, or correct --data-dir",
			"there is no database in %s",
			filepath.Dir(file),
		)
	}
	return file, err
}

// RewritableFile is DatabaseFile for a verb that rewrites the file: it resolves a symbolic link. It
// returns a failure for a snapshot, because its manifest would no longer match.
func (a *App) RewritableFile(args []string) (string, error) {
	file, err := a.DatabaseFile(args)
	if err == nil {
		file, err = lock.Target(file)
	}
	if err != nil {
		return "", err
	}
	if _, err := store.ReadManifest(file); !errors.Is(err, fs.ErrNotExist) {
		return "", Fail(
			ExitFailed,
			"snapshot",
			"restore it into an empty --data-dir with `ronbox db restore`, and work there",
			"%s is a snapshot: its manifest would no longer fit it",
			file,
		)
	}
	return file, nil
}

// ReadDatabase opens a database file that no node has open, calls use and closes it.
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

// ViewDatabase is ReadDatabase with a read transaction.
func ViewDatabase(ctx context.Context, file string, use func(store.Reader) error) error {
	return ReadDatabase(file, func(r *store.ReadOnly) error { return r.View(ctx, use) })
}

// CheckRegular returns a failure for anything but a regular file.
func CheckRegular(file string) error {
	st, err := os.Stat(file)
	switch {
	case err != nil:
		return err
	case st.IsDir():
		return Fail(ExitFailed, "is_directory",
			"name the database file in it, such as "+filepath.Join(file, config.DatabaseName), "%s is a directory",
			file)
	case !st.Mode().IsRegular():
		return Fail(ExitFailed, "not_a_file", "name a database file", "%s is no regular file", file)
	}
	return nil
}

const (
	MaxTokenFile = 64 << 10
	// NotAToken is the advice for a file without a token.
	NotAToken = "a token is one line of base64url: `ronbox token mint --out FILE` makes one"
)

// ReadToken reads a token file.
func ReadToken(path string) (string, error) {
	raw, err := ReadFile(path, MaxTokenFile)
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	return ParseToken(path, raw, ExitFailed)
}

// ParseToken returns the token in the bytes of a file. If the file holds no token, the error has
// the exit code bad.
func ParseToken(name string, raw []byte, bad int) (string, error) {
	token := strings.TrimSpace(string(raw))
	switch {
	case token == "":
		return "", Fail(bad, "malformed", NotAToken, "%s is empty", name)
	case token[0] == '{', strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", Fail(bad, "malformed", NotAToken, "%s holds no token", name)
	}
	return token, nil
}
