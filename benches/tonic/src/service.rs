//! The gRPC service of the exchange: one unary method with plain bytes as messages.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use exchange::{answer, mark, marked};
use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic::server::{NamedService, UnaryService};
use tonic::transport::Channel;
use tonic::{Request, Response, Status, body::Body};

use crate::plain::Plain;

const PATH: &str = "/exchange.Exchange/Ask";

/// Requests that a process has served since it was last asked.
#[derive(Default)]
pub struct Served {
    pub served: u64,
    pub received: u64,
}

#[derive(Clone)]
pub struct Server {
    pub own: usize,
    pub served: Arc<Mutex<Served>>,
}

impl NamedService for Server {
    const NAME: &'static str = "exchange.Exchange";
}

impl UnaryService<Bytes> for Server {
    type Response = Bytes;
    type Future = Ready<Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let mut words = words_of(request.get_ref());
        let number = marked(&words).unwrap_or(u64::MAX);
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        served.served += 1;
        served.received = served.received.wrapping_add(number);
        mark(&mut words, answer(number, self.own));
        ready(Ok(Response::new(bytes_of(&words))))
    }
}

impl tower_service::Service<http::Request<Body>> for Server {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move { Ok(tonic::server::Grpc::new(Plain).unary(server, request).await) })
    }
}

/// Asks one peer.
pub async fn ask(channel: &Channel, words: &[u64]) -> Result<Vec<u64>, Status> {
    let mut client = Grpc::new(channel.clone());
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let request = Request::new(bytes_of(words));
    let answer = client.unary(request, PathAndQuery::from_static(PATH), Plain).await?;
    Ok(words_of(answer.get_ref()))
}

fn bytes_of(words: &[u64]) -> Bytes {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn words_of(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}
