package hclog

type Logger interface {
	Info(msg string, args ...any)
	With(args ...any) Logger
}
