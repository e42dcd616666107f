// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=256 --split-size=128 --remarks=missed 2>&1 | filecheck %s

// The last maximum, from a start of 0 at -1. Numbers of 0 take its place; a slice without one would bring the start back,
// which is the last of its equals then.

// CHECK-NOT: stablehlo.while
// CHECK: stablehlo.reduce
// CHECK: {{.*}}refuse-start-in-the-middle.mlir:{{.*}}: remark: 12x32xf32 (1.54KB) not split: 

func.func @main(%a: tensor<12x3xf32>, %b: tensor<32x3xf32>) -> (tensor<12xf32>, tensor<12xi32>) {
  %d = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<12x3xf32>, tensor<32x3xf32>) -> tensor<12x32xf32>
  %zz = stablehlo.constant dense<0.0> : tensor<12x32xf32>
  %x = stablehlo.minimum %d, %zz : tensor<12x32xf32>
  %srt = "stablehlo.sort"(%x) ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %c = stablehlo.compare GT, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
  }) {dimension = 0 : i64} : (tensor<12x32xf32>) -> tensor<12x32xf32>
  %io = stablehlo.iota dim = 1 : tensor<12x32xi32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %none = stablehlo.constant dense<-1> : tensor<i32>
  %r:2 = "stablehlo.reduce"(%srt, %io, %z, %none) <{dimensions = array<i64: 1>}> ({
    ^bb0(%x0: tensor<f32>, %xi: tensor<i32>, %y0: tensor<f32>, %yi: tensor<i32>):
      %p = stablehlo.compare GE, %y0, %x0 : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %s1 = stablehlo.select %p, %y0, %x0 : tensor<i1>, tensor<f32>
      %s2 = stablehlo.select %p, %yi, %xi : tensor<i1>, tensor<i32>
      stablehlo.return %s1, %s2 : tensor<f32>, tensor<i32>
  }) : (tensor<12x32xf32>, tensor<12x32xi32>, tensor<f32>, tensor<i32>) -> (tensor<12xf32>, tensor<12xi32>)
  return %r#0, %r#1 : tensor<12xf32>, tensor<12xi32>
}
