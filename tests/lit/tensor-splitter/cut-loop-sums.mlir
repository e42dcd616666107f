// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB 2>&1 | filecheck %s

// The loop adds up all that it carries, and starts from something: every tile starts from zero, and the start is added once.
// Another sum is written into a stack, one step at a time: every tile adds to the stack that the tiles before it have made.

// CHECK: %[[OUT:.*]]:3 = stablehlo.while({{.*}}) : tensor<i32>, tensor<f32>, tensor<3xf32>
// CHECK: %[[LOOP:.*]]:4 = stablehlo.while({{.*}}, %[[STACK:iterArg[_0-9]*]] = %iterArg_6) : tensor<i32>, tensor<6400xf32>, tensor<f32>, tensor<3xf32>
// CHECK: stablehlo.reduce{{.*}}(tensor<6400xf32>, tensor<f32>) -> tensor<f32>
// CHECK: %[[BEFORE:[0-9]*]] = stablehlo.dynamic_slice %[[STACK]], %[[STEP:[A-Za-z_0-9]*]], sizes = [1]
// CHECK: %[[NEXT:[0-9]*]] = stablehlo.add %[[BEFORE]], %{{.*}} : tensor<1xf32>
// CHECK: stablehlo.dynamic_update_slice %[[STACK]], %[[NEXT]], %[[STEP]]
// CHECK: stablehlo.add %{{.*}}, %[[LOOP]]#2
// CHECK-NOT: stablehlo.add %{{.*}}, %[[LOOP]]#3
// CHECK: stablehlo.add %arg1, %[[OUT]]#1
// CHECK-NOT: not split

func.func @main(%a: tensor<51200xf32>, %start: tensor<f32>) -> (tensor<f32>, tensor<3xf32>) {
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %last = stablehlo.constant dense<3> : tensor<i32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %stack = stablehlo.constant dense<0.0> : tensor<3xf32>
  %b = stablehlo.exponential %a : tensor<51200xf32>
  %loop:4 = stablehlo.while(%i = %i0, %x = %b, %s = %start, %t = %stack) : tensor<i32>, tensor<51200xf32>, tensor<f32>, tensor<3xf32>
    cond {
      %go = stablehlo.compare LT, %i, %last : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %0 = stablehlo.cosine %x : tensor<51200xf32>
      %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<51200xf32>, tensor<f32>) -> tensor<f32>
      %2 = stablehlo.add %s, %1 : tensor<f32>
      %3 = stablehlo.negate %1 : tensor<f32>
      %4 = stablehlo.reshape %3 : (tensor<f32>) -> tensor<1xf32>
      %5 = stablehlo.dynamic_update_slice %t, %4, %i : (tensor<3xf32>, tensor<1xf32>, tensor<i32>) -> tensor<3xf32>
      stablehlo.return %next, %0, %2, %5 : tensor<i32>, tensor<51200xf32>, tensor<f32>, tensor<3xf32>
    }
  return %loop#2, %loop#3 : tensor<f32>, tensor<3xf32>
}
