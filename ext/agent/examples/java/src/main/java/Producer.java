import com.google.protobuf.ByteString;
import fencepost.agent.v1.AgentGrpc;
import fencepost.agent.v1.AgentOuterClass.Append;
import fencepost.agent.v1.AgentOuterClass.LeadRequest;
import fencepost.agent.v1.AgentOuterClass.LeadResponse;
import fencepost.agent.v1.AgentOuterClass.Open;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import io.grpc.stub.MetadataUtils;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.CountDownLatch;

/** Appends the numbers up to LAST, each once, however often it is killed: Producer HOST:PORT TOKEN_FILE LOG LAST. */
public class Producer {
  public static void main(String[] args) throws Exception {
    var headers = new Metadata();
    headers.put(
        Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER),
        "Bearer " + Files.readString(Path.of(args[1])).strip());
    ManagedChannel channel = NettyChannelBuilder.forTarget(args[0]).usePlaintext().build();
    var session = new Session(args[2], Long.parseLong(args[3]));
    AgentGrpc.newStub(channel)
        .withInterceptors(MetadataUtils.newAttachHeadersInterceptor(headers))
        .lead(session);
    session.over.await();
    channel.shutdownNow();
    System.out.println(session.outcome);
    System.exit(session.done ? 0 : 1);
  }

  /** One term. The stream is the session: it ends when the process dies. */
  static class Session implements ClientResponseObserver<LeadRequest, LeadResponse> {
    final CountDownLatch over = new CountDownLatch(1);
    final String url;
    final long last;
    volatile String outcome = "the stream has ended";
    volatile boolean done;
    private ClientCallStreamObserver<LeadRequest> out;
    private long next; // 0 until this process leads

    Session(String url, long last) {
      this.url = url;
      this.last = last;
    }

    @Override
    public void beforeStart(ClientCallStreamObserver<LeadRequest> out) {
      this.out = out;
      out.setOnReadyHandler(this::send); // back-pressure: only what the agent has room for is sent
    }

    private void send() {
      if (next == 0 && url != null && !opened) {
        opened = true;
        out.onNext(LeadRequest.newBuilder().setOpen(Open.newBuilder().setUrl(url)).build());
      }
      while (next > 0 && next <= last && out.isReady()) {
        var number = ByteString.copyFromUtf8(Long.toString(next++));
        out.onNext(LeadRequest.newBuilder().setAppend(Append.newBuilder().addRecords(number).setCursor(number)).build());
      }
      if (next > last && !closed) {
        closed = true;
        out.onCompleted(); // what was sent is committed first
      }
    }

    private boolean opened;
    private boolean closed;

    @Override
    public void onNext(LeadResponse event) {
      switch (event.getEvent()) {
        case "waiting" -> System.out.println("waiting for " + event.getHolder());
        case "leading" -> {
          String cursor = event.getCursor().toStringUtf8(); // what was committed last: go on after it
          next = cursor.isEmpty() ? 1 : Long.parseLong(cursor) + 1;
          System.out.println("leading in epoch " + event.getEpoch() + ", from " + next);
          send();
        }
        case "ended", "lost" -> {
          done = event.getEvent().equals("ended");
          outcome = done ? "the log has " + event.getEnd() + " records" : "lost the lead: " + event.getWhy();
        }
        default -> {} // committed, draining, trouble
      }
    }

    @Override
    public void onError(Throwable why) {
      if (!done) outcome = why.toString();
      over.countDown();
    }

    @Override
    public void onCompleted() {
      over.countDown();
    }
  }
}
