//! How services are called: a unary call of gRPC each, named by the service, with a message of protobuf each way. As
//! between services that know of each other only by name, also where both are at the same process.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::uri::PathAndQuery;
use prost::Message;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::client::Grpc;
use tonic::server::{NamedService, UnaryService};
use tonic::transport::Channel;
use tonic::{Request, Response, Status, body::Body};

use crate::Result;
use crate::plain::Plain;
use crate::services::Services;

type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// All processes, by number.
#[derive(Clone)]
pub struct Peers(Arc<[Channel]>);

impl Peers {
    /// Those with these ports of this host.
    pub async fn connect(ports: impl Iterator<Item = &str>) -> Result<Peers> {
        let mut channels = Vec::new();
        for port in ports {
            let address = format!("http://127.0.0.1:{port}");
            channels.push(Channel::from_shared(address)?.tcp_nodelay(true).connect().await?);
        }
        Ok(Peers(channels.into()))
    }

    /// Calls a service by its number, as places have them in the example.
    pub async fn call<A: Message + Default>(
        &self,
        (number, path): (usize, &'static str),
        message: &impl Message,
    ) -> std::result::Result<A, Status> {
        let mut client = Grpc::new(self.0[number % self.0.len()].clone());
        client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let request = Request::new(Bytes::from(message.encode_to_vec()));
        let answer = client.unary(request, PathAndQuery::from_static(path), Plain).await?;
        read(answer.into_inner())
    }
}

/// A message that has come.
///
/// # Errors
/// An answer of the wrong form.
pub fn read<M: Message + Default>(bytes: Bytes) -> std::result::Result<M, Status> {
    M::decode(bytes).map_err(|error| Status::invalid_argument(error.to_string()))
}

/// Serves its callers for as long as the process lives.
pub fn serve(listener: TcpListener, services: Arc<Services>) {
    tokio::spawn(async move {
        let router = tonic::transport::Server::builder().tcp_nodelay(true).add_service(Server(services));
        if let Err(error) = router.serve_with_incoming(TcpListenerStream::new(listener)).await {
            eprintln!("social-tonic: the server has ended: {error}");
        }
    });
}

#[derive(Clone)]
struct Server(Arc<Services>);

impl NamedService for Server {
    const NAME: &'static str = "social.Services";
}

impl tower_service::Service<http::Request<Body>> for Server {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Later<std::result::Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let method = Method { services: Arc::clone(&self.0), path: request.uri().path().to_owned() };
        Box::pin(async move { Ok(tonic::server::Grpc::new(Plain).unary(method, request).await) })
    }
}

/// The one that a request names.
struct Method {
    services: Arc<Services>,
    path: String,
}

impl UnaryService<Bytes> for Method {
    type Response = Bytes;
    type Future = Later<std::result::Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let (services, path) = (Arc::clone(&self.services), std::mem::take(&mut self.path));
        Box::pin(async move { services.answer(&path, request.into_inner()).await.map(Response::new) })
    }
}
