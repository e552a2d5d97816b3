package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// app is one run of the command: its streams, its flags and what the verbs share.
type app struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	now    func() time.Time
	flags  flags
	exit   int // of a verb that ended well and yet has something to say: serve
}

// flags are those that every verb knows.
type flags struct {
	config    string
	dataDir   string
	socket    string
	url       string
	caFile    string
	tokenFile string
	timeout   time.Duration
	json      bool
	quiet     bool
	yes       bool
}

func now() time.Time { return time.Now() }

// run performs one command line and returns the exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.tree()
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	cmd, err := root, nothingGiven(args)
	if err == nil {
		cmd, err = root.ExecuteContextC(ctx)
	}
	if err == nil {
		return a.exit
	}
	a.flags.json = a.flags.json || slices.Contains(args, "--json") // a wrong flag ends the parsing
	return a.complain(usedAs(cmd, asUsage(err)))
}

// usedAs says how cmd is used to who used it otherwise.
func usedAs(cmd *cobra.Command, err error) error {
	if f, ok := errors.AsType[*failure](err); ok && f.code == exitUsage && f.next == seeHelp {
		f.next = "usage: " + cmd.UseLine() + "; --help says more"
		if cmd.HasSubCommands() {
			f.next = "usage: " + cmd.CommandPath() + " VERB; --help lists them"
		}
	}
	return err
}

// belowZero is how the flags see a number that nothing here is ever below.
var belowZero = regexp.MustCompile(`^unknown shorthand flag: '[0-9.]' in (-[0-9.].*)$`)

// noValue is how the flags see a value that is not of the kind that one takes.
var noValue = regexp.MustCompile(`(?s)^invalid argument (".*") for "(?:-., )?--([a-z-]+)" flag: `)

// wrongFlag words what is wrong with a flag.
func wrongFlag(cmd *cobra.Command, err error) error {
	if m := belowZero.FindStringSubmatch(err.Error()); m != nil {
		return usage("%q is no flag, and no number here is below 0", m[1])
	}
	if m := noValue.FindStringSubmatch(err.Error()); m != nil {
		switch f := cmd.Flags().Lookup(m[2]); f.Value.Type() {
		case "int", "int64", "uint64":
			return usage("--%s %s: want a whole number, not below 0 and not too large", m[2], m[1])
		case "duration":
			return usage("--%s %s: want a time such as 90s, 15m or 24h", m[2], m[1])
		case "bool":
			return usage("--%s %s: want true or false, or no value for true", m[2], m[1])
		}
	}
	return usage("%w", err)
}

// asUsage recognises cobra's own complaints, which carry no type.
func asUsage(err error) error {
	for _, prefix := range []string{"unknown command", "unknown flag", "unknown shorthand", "required flag", "if any flags in the group"} {
		if strings.HasPrefix(err.Error(), prefix) {
			return usage("%w", err)
		}
	}
	return err
}

// verb makes RunE of a verb that Ctrl-C ends; where it waits for what cannot be called back, a pipe that nobody fills, a second one does.
func (a *app) verb(run func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		defer context.AfterFunc(ctx, func() { time.AfterFunc(sameSignal, stop) })()
		a.stdin = heed(ctx, a.stdin)
		err := run(ctx, args)
		if err != nil && ctx.Err() != nil && cmd.Context().Err() == nil {
			return interrupted(err)
		}
		return err
	}
}

// interrupted is what Ctrl-C makes of err: how to find out what was done stays.
func interrupted(err error) error {
	f := failed(exitInterrupted, "interrupted", "", "interrupted")
	if was, ok := errors.AsType[*failure](err); ok && was.unsettled {
		f.next, f.details = was.next, was.details
	}
	return f
}

// exactly, atLeast and atMost are cobra's argument rules with our usage error.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != n {
			return usage("want %s, got %d", what, len(args))
		}
		return nil
	}
}

func atLeast(n int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < n {
			return usage("want %s, got %d", what, len(args))
		}
		return nil
	}
}

func atMost(n int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > n {
			return usage("want %s, got %d", what, len(args))
		}
		return nil
	}
}

// nothingGiven refuses a flag without a value: a script's variable that is not set would narrow no token, hold no log
// against its genesis and send no token, without a word. Only what is kept for people may be nothing.
func nothingGiven(args []string) error {
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		return nil // a shell asks what could stand there
	}
	for i, arg := range args {
		name, value, assigned := strings.Cut(arg, "=")
		if arg == "--" {
			return nil
		}
		if arg == "" && i > 0 {
			name, assigned = args[i-1], true
		}
		if assigned && value == "" && strings.HasPrefix(name, "-") && name != "--reason" {
			return usage("%s is given nothing: leave it out, or say what is meant", name)
		}
	}
	return nil
}

// confirm asks before something is replaced: --yes answers, else a person at the terminal has to type the target.
func (a *app) confirm(what, target string) error {
	if a.flags.yes {
		return nil
	}
	if !terminal(a.stdin) || !terminal(a.stderr) {
		return failed(exitUsage, "confirm", "add --yes if that is meant", "%s: not without --yes", what)
	}
	fmt.Fprintf(a.stderr, "%s\nType %s to go on: ", what, target)
	line, err := bufio.NewReader(io.LimitReader(a.stdin, 4096)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the confirmation: %w", err)
	}
	if strings.TrimSpace(line) != target {
		return failed(exitFailed, "not_confirmed", "", "not confirmed")
	}
	return nil
}
