# The demo consumer, which docker-compose.yml starts as the producer and as each consumer.
FROM golang:1.26.8-bookworm AS build
ENV CGO_ENABLED=0 GOWORK=off
WORKDIR /src
COPY go.mod go.sum ./
COPY cmd/go.mod cmd/go.sum cmd/
RUN cd cmd && go mod download
COPY . .
RUN cd cmd && go build -trimpath -o /out/demo-consumer ./demo-consumer

# Slim rather than distroless: the health check needs a shell.
FROM debian:bookworm-20250811-slim
USER nobody
COPY --from=build /out/demo-consumer /usr/local/bin/demo-consumer
ENTRYPOINT ["/usr/local/bin/demo-consumer"]
