package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/kielgo/kiel/cmd/internal/connect"
	"github.com/kielgo/kiel/consumer/inspect"
	"github.com/kielgo/kiel/consumer/page"
	"github.com/kielgo/kiel/session"
)

// server serves HTTP, and the pages that need to look at a group.
type server struct {
	ctx    context.Context //nolint:containedctx // the process's lifetime
	logger *slog.Logger
	ends   []func()
}

// Run serves the page of a group until it is told to stop.
func (c *pageCmd) Run(rc *runContext) error {
	servers, root, err := connect.SplitZooKeeper(c.ZooKeeper)
	if err := errors.Join(err, checkAddress("listen", c.Listen)); err != nil {
		return err
	}
	logger := newLogger(rc.console, c.Verbose)
	sources := inspect.Sources{
		Servers: servers, Session: session.Options{Chroot: root, Logger: logger}, Brokers: c.Kafka, Config: connect.KafkaConfig("kiel-demo"),
		Members: c.AskMembers != "none", Local: c.AskMembers == "local",
	}
	if err := errors.Join(c.ZooKeeperFlags.Secure(&sources.Session), c.KafkaFlags.Secure(sources.Config, warning(logger))); err != nil {
		return err
	}
	s, mux := &server{ctx: rc, logger: logger}, http.NewServeMux()
	if err := s.page(mux, "/", c.Group, sources, page.Options{}); err != nil {
		return connect.Usage(err)
	}
	base, err := s.serve("--listen", c.Listen, mux)
	if err != nil {
		return err
	}
	defer s.stop()
	logger.InfoContext(rc, "serving", "page", base+"/")
	<-rc.Done()
	return nil
}

// page has mux serve a group's page at a path.
func (s *server) page(mux *http.ServeMux, path, group string, sources inspect.Sources, opts page.Options) error {
	h, err := page.New(group, sources, opts)
	if err != nil {
		return err
	}
	mux.Handle(path, h)
	ctx, cancel := context.WithCancel(s.ctx)
	var running sync.WaitGroup
	running.Go(func() {
		if err := h.Run(ctx); err != nil {
			s.logger.ErrorContext(ctx, "page failed", "error", err)
		}
	})
	s.ends = append(s.ends, func() { cancel(); running.Wait() })
	return nil
}

// serve serves a handler at the address that a flag has given, and returns the address with which links to it begin.
func (s *server) serve(flag, address string, handler http.Handler) (base string, err error) {
	l, err := (&net.ListenConfig{}).Listen(s.ctx, "tcp", address)
	if err != nil {
		s.stop()
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%s is taken by another process (give each member a port of its own; port 0 takes any that is free): %w", address, err)
		}
		return "", connect.Usage(fmt.Errorf("%s: %w", flag, err))
	}
	srv := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.logger.Error("HTTP server failed", "error", err)
		}
	})
	s.ends = append(s.ends, func() {
		if err := srv.Close(); err != nil {
			s.logger.Error("HTTP server not closed", "error", err)
		}
		serving.Wait()
	})
	return "http://" + l.Addr().String(), nil
}

// stop ends all that was begun, the last first.
func (s *server) stop() {
	for _, end := range slices.Backward(s.ends) {
		end()
	}
	s.ends = nil
}
