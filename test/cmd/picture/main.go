// Command picture makes the picture of the page of package page that docs/page.md shows: a group in which something is wrong, on
// embedded servers, in a real browser.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/kielgo/kiel/consumer/page"
	"github.com/kielgo/kiel/test/page/scene"
	"github.com/kielgo/kiel/test/servers/software"
)

// waits is how long what is wrong goes on before the picture is taken.
const waits = 20 * time.Second

func main() {
	out := flag.String("o", "docs/page.png", "the file to write")
	width := flag.Int64("width", 1120, "of the window, in pixels")
	dark := flag.Bool("dark", false, "as in dark rooms")
	flag.Parse()
	slog.SetDefault(slog.New(slog.DiscardHandler)) // members complain of what is wrong on purpose
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	png, err := take(ctx, *width, *dark)
	stop()
	if err == nil {
		err = os.WriteFile(*out, png, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

// take plays the scene and takes the picture.
func take(ctx context.Context, width int64, dark bool) ([]byte, error) {
	path, err := software.Browser()
	if err != nil {
		return nil, err
	}
	s, err := scene.Start(ctx, page.Options{Refresh: time.Second})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	opts := []chromedp.ExecAllocatorOption{chromedp.ExecPath(path), chromedp.Headless, chromedp.NoFirstRun}
	if os.Geteuid() == 0 {
		opts = append(opts, chromedp.NoSandbox)
	}
	allocator, end := chromedp.NewExecAllocator(ctx, opts...)
	defer end()
	tab, cancel := chromedp.NewContext(allocator)
	defer cancel()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	size := chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		metrics := emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 900, DeviceScaleFactor: 1}
		if _, err := cdp.Call(ctx, t, emulation.SetDeviceMetricsOverride, metrics); err != nil {
			return err
		}
		media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, media)
		return err
	})
	if err := chromedp.Do(tab, size, chromedp.Navigate(s.URL)); err != nil {
		return nil, err
	}
	if err := s.Incident(ctx); err != nil {
		return nil, err
	}
	if err := chromedp.Do(tab, chromedp.Sleep(waits)); err != nil {
		return nil, err
	}
	return chromedp.Run(tab, chromedp.FullScreenshot(100))
}
